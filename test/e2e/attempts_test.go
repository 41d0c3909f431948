package e2e

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
)

const (
	inVictims = "/clusters/{v}/api/v1/namespaces/default/"
	inOwn     = "/clusters/{o}/api/v1/namespaces/default/"
)

// attempts is everything that the attackers send. Through a door that does not have one of the clusters, its name is as
// one that does not exist, and through a front URLs are judged before rights.
func attempts() []hostile {
	all := slices.Concat(plain(), paths(), headers(), impersonations(), credentials(), lists(), ofProcess(), system(), inRoot(), inOwnCluster())
	return slices.Concat(all, onCustom(all), definitionsOf())
}

// onCustom are those of the attempts on ConfigMaps, on custom objects. Both tenants define their resource under the
// same name, in different ways.
func onCustom(all []hostile) (out []hostile) {
	other := strings.NewReplacer(
		"api/v1/namespaces/default/configmaps", "apis/attack.example.com/v1/namespaces/default/widgets", "api/v1/configmaps", "apis/attack.example.com/v1/widgets",
		"api/v1/watch/namespaces/default/configmaps", "apis/attack.example.com/v1/watch/namespaces/default/widgets", "default/configmaps", "default/widgets",
		`"v1","kind":"ConfigMap"`, `"attack.example.com/v1","kind":"Widget"`, `"metadata"`, `"apiVersion":"attack.example.com/v1","kind":"Widget","metadata"`,
	)
	for _, at := range all {
		path := other.Replace(at.path)
		if path == at.path || !strings.Contains(path, "widgets") {
			continue
		}
		at.what, at.path = "custom: "+at.what, path
		if at.body != "" && !strings.Contains(at.body, `"kind":"ConfigMap","metadata"`) && !strings.HasPrefix(at.body, `{"metadata"`) {
			at.body = strings.ReplaceAll(at.body, `"ConfigMap"`, `"Widget"`)
		} else {
			at.body = other.Replace(strings.ReplaceAll(at.body, `"apiVersion":"v1","kind":"ConfigMap","metadata"`, `"metadata"`))
		}
		if strings.HasPrefix(at.what, "custom: custom") || at.method == "" && at.token == "" && slices.Equal(at.want, noRequest) {
			at.want = append([]int{http.StatusMethodNotAllowed}, at.want...)
		}
		out = append(out, at)
	}
	return out
}

// definitionsOf is what somebody tries with definitions, and with what the victim's say.
func definitionsOf() (out []hostile) {
	const crds, name = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/widgets.attack.example.com"
	merge := []string{"Content-Type: application/merge-patch+json"}
	for _, cluster := range []string{"{v}", "{vp}", "*", "root", "system:admin"} {
		base := "/clusters/" + cluster
		for _, c := range []hostile{
			{path: base + crds}, {path: base + crds + name}, {path: base + crds + "?watch=true"}, {method: "DELETE", path: base + crds + name}, {method: "DELETE", path: base + crds},
			{method: "PATCH", path: base + crds + name, body: `{"spec":{"conversion":{"strategy":"None"}}}`, header: merge},
			{method: "PATCH", path: base + crds + name + "/status", body: `{"status":{"acceptedNames":{"plural":"secrets"}}}`, header: merge},
			{path: base + "/apis/attack.example.com"}, {path: base + "/apis/attack.example.com/v1"}, {path: base + "/openapi/v3/apis/attack.example.com/v1"},
			{path: base + "/apis/attack.example.com/v1/widgets"}, {path: base + "/apis/attack.example.com/v1/widgets?watch=true"},
			{path: base + "/apis/attack.example.com/v1/namespaces/default/widgets/treasure/status"}, {path: base + "/apis/attack.example.com/v1/namespaces/default/widgets/treasure/scale"},
		} {
			c.what, c.want = "definitions: "+c.method+" "+c.path, noRequest
			// where the attacker is let in: upstream has an empty document of each group that there is not
			if cluster == "root" && strings.Contains(c.path, "/openapi/") {
				c.want = append([]int{http.StatusOK}, noRequest...)
			}
			out = append(out, c)
		}
	}
	const own = "/clusters/{o}"
	definition := func(group, plural, kind, more string) string {
		return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"` + plural + "." + group + `"},"spec":{"group":"` + group + `","scope":"Namespaced","names":{"plural":"` +
			plural + `","kind":"` + kind + `"},` + more + `"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`
	}
	for what, body := range map[string]string{
		"a group of the server's":  definition("tenancy.kcp.io", "workspaces", "Workspace", ""),
		"the shard's own metadata": definition("core.kcp.io", "shards", "Shard", ""),
		"a group that is a path":   definition("../../{v}", "widgets", "Widget", ""),
		"a kind that is a path":    definition("a.example.com", "widgets", "../../{v}", ""),
		"a webhook at the etcd": definition("b.example.com", "widgets", "Widget",
			`"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"https://127.0.0.1:2379/"}}},`),
		"a webhook at the cloud's metadata": definition("c.example.com", "widgets", "Widget",
			`"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"https://169.254.169.254/latest/"}}},`),
	} {
		out = append(out, hostile{what: "definitions: " + what, method: "POST", path: own + crds, body: body, want: []int{http.StatusForbidden, http.StatusUnprocessableEntity}})
	}
	return append(out,
		hostile{what: "the schema of one's own", path: own + "/openapi/v3/apis/attack.example.com/v1", want: harmless},
		hostile{what: "discovery of one's own", path: own + "/apis/attack.example.com/v1", want: harmless},
		hostile{what: "an object with the victim's defaults", method: "POST", path: own + "/apis/attack.example.com/v1/namespaces/default/widgets",
			body: `{"apiVersion":"attack.example.com/v1","kind":"Widget","metadata":{"generateName":"a-"},"spec":{}}`, want: harmless},
	)
}

// refusal are the answers of the server to somebody without the right. A front says that there is no such URL before it
// asks for rights.
var (
	forbidden  = []int{http.StatusForbidden}
	noRequest  = []int{http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound}
	nobody     = []int{http.StatusUnauthorized}
	notAllowed = []int{http.StatusForbidden, http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusUnprocessableEntity}
	// What users do in their own clusters may succeed, and elsewhere has no effect. The door that does not have the
	// cluster refuses it.
	harmless = []int{
		http.StatusOK, http.StatusCreated, http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusGone,
		http.StatusUnprocessableEntity, http.StatusGatewayTimeout,
	}
)

// plain are ordinary requests of somebody with no rights, by name and by path.
func plain() (out []hostile) {
	for _, cluster := range []string{"{v}", "{vp}"} {
		base := "/clusters/" + cluster
		ns := base + "/api/v1/namespaces/default/"
		for _, c := range []hostile{
			{method: "GET", path: ns + "configmaps/treasure"},
			{method: "HEAD", path: ns + "configmaps/treasure"},
			{method: "GET", path: ns + "secrets/treasure"},
			{method: "GET", path: ns + "configmaps"},
			{method: "GET", path: base + "/api/v1/secrets"},
			{method: "GET", path: ns + "configmaps?watch=true"},
			{method: "GET", path: ns + "configmaps?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"},
			{method: "GET", path: ns + "configmaps?resourceVersion=0"},
			{method: "GET", path: ns + "configmaps?resourceVersion={vr}&resourceVersionMatch=Exact"},
			{method: "GET", path: ns + "configmaps?limit=1&continue={vc}"},
			{method: "GET", path: ns + "configmaps?fieldSelector=metadata.name%3Dtreasure"},
			{method: "GET", path: base + "/api/v1/watch/namespaces/default/configmaps/treasure"},
			{method: "GET", path: ns + "configmaps/treasure", header: []string{"Accept: application/json;as=Table;g=meta.k8s.io;v=v1"}},
			{method: "GET", path: ns + "configmaps/treasure", header: []string{"Accept: application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}},
			{method: "POST", path: ns + "configmaps", body: `{"metadata":{"name":"planted"}}`},
			{method: "POST", path: ns + "configmaps?dryRun=All", body: `{"metadata":{"generateName":"treasure-"}}`},
			{method: "PUT", path: ns + "configmaps/treasure", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"treasure"}}`},
			{method: "PATCH", path: ns + "configmaps/treasure", body: `{"data":{"a":"b"}}`, header: []string{"Content-Type: application/merge-patch+json"}},
			{method: "PATCH", path: ns + "configmaps/treasure?fieldManager=x&force=true", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"treasure"}}`, header: []string{"Content-Type: application/apply-patch+yaml"}},
			{method: "PATCH", path: ns + "configmaps/planted?fieldManager=x&dryRun=All", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"planted"}}`, header: []string{"Content-Type: application/apply-patch+yaml"}},
			{method: "DELETE", path: ns + "configmaps/treasure"},
			{method: "DELETE", path: ns + "configmaps"},
			{method: "DELETE", path: ns + "configmaps?dryRun=All"},
			{method: "DELETE", path: base + "/api/v1/namespaces/default"},
			{method: "PUT", path: base + "/api/v1/namespaces/default/finalize", body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"default"}}`},
			{method: "POST", path: ns + "serviceaccounts/bot/token", body: `{"spec":{}}`},
			{method: "POST", path: ns + "events", body: `{"metadata":{"name":"e"},"involvedObject":{"namespace":"default"}}`},
			{method: "GET", path: base + "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"},
			{method: "POST", path: base + "/apis/core.kcp.io/v1alpha1/logicalclusters", body: `{"metadata":{"name":"cluster"}}`},
			{method: "DELETE", path: base + "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"},
			{method: "PATCH", path: base + "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster", body: `{"metadata":{"finalizers":[],"annotations":{"experimental.tenancy.kcp.io/owner":"{\"username\":\"{on}\"}"}}}`, header: []string{"Content-Type: application/merge-patch+json"}},
			{method: "PATCH", path: base + "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster/status", body: `{"status":{"phase":"Initializing"}}`, header: []string{"Content-Type: application/merge-patch+json"}},
			{method: "POST", path: base + "/apis/tenancy.kcp.io/v1alpha1/workspaces", body: `{"metadata":{"name":"planted"}}`},
			{method: "POST", path: base + "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", body: `{"metadata":{"name":"me"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"{on}"}]}`},
			{method: "GET", path: base + "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"},
			{method: "POST", path: base + "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body: `{"spec":{"resourceAttributes":{"verb":"get","resource":"secrets"}}}`},
			{method: "POST", path: base + "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body: `{"spec":{"namespace":"default"}}`},
			{method: "POST", path: base + "/apis/authorization.k8s.io/v1/subjectaccessreviews", body: `{"spec":{"user":"{vn}","resourceAttributes":{"verb":"get","resource":"secrets"}}}`},
			{method: "POST", path: base + "/apis/authentication.k8s.io/v1/tokenreviews", body: `{"spec":{"token":"{vt}"}}`},
			{method: "POST", path: base + "/apis/authentication.k8s.io/v1/selfsubjectreviews", body: `{}`},
			{method: "GET", path: base}, {method: "GET", path: base + "/api"}, {method: "GET", path: base + "/apis"}, {method: "GET", path: base + "/api/v1"},
			{method: "GET", path: base + "/openapi/v2"}, {method: "GET", path: base + "/openapi/v3"}, {method: "GET", path: base + "/openapi/v3/api/v1"},
			{method: "OPTIONS", path: ns + "configmaps"}, {method: "TRACE", path: ns + "configmaps"}, {method: "PROPFIND", path: ns + "configmaps/treasure"},
			{method: "GET", path: base + "/metrics"}, {method: "GET", path: base + "/debug/pprof/heap"},
		} {
			c.what, c.want = c.method+" "+c.path, forbidden
			out = append(out, c)
		}
	}
	return out
}

// paths are URLs that some server might take for another one.
func paths() (out []hostile) {
	const treasure = "api/v1/namespaces/default/configmaps/treasure"
	for _, path := range []string{
		"//clusters/{v}/" + treasure, "/clusters//{v}/" + treasure, "/clusters/{v}//" + treasure, "/./clusters/{v}/" + treasure,
		"/clusters/{o}/../{v}/" + treasure, "/clusters/{o}/..%2f{v}/" + treasure, "/clusters/{o}%2f..%2f{v}/" + treasure, "/clusters/{o}/%2e%2e/{v}/" + treasure,
		"/clusters/{o}/clusters/{v}/" + treasure, "/clusters/{o}/api/../../{v}/" + treasure, "/clusters/{o}%00{v}/" + treasure, "/clusters/{o}:{v}/" + treasure,
		"/clusters/{op}:{v}/" + treasure, "/clusters/{op}:..:{vn}s/" + treasure, "/clusters/{o},{v}/" + treasure, "/clusters/{o};{v}/" + treasure,
		"/clusters/{v}%20/" + treasure, "/clusters/{v}./" + treasure, "/CLUSTERS/{v}/" + treasure, "/Clusters/{v}/" + treasure,
		"/clusters/%2a/api/v1/configmaps", "/clusters/*/api/v1/configmaps", "/clusters/*/api/v1/secrets?watch=true", "/clusters/**/api/v1/configmaps",
		"/clusters/{v}*/api/v1/configmaps", "/clusters/root:*/api/v1/configmaps", "/" + treasure, "/api/v1/configmaps", "/apis", "/openapi/v2",
		"/clusters/{v}/" + treasure + "/", "/clusters/{v}/" + treasure + "/status", "/clusters/{v}/" + treasure + "%00", "/clusters/{v}/" + treasure + "%2f..",
		"/clusters/{o}/api/v1/namespaces/default%2f..%2f..%2f{v}%2fdefault/configmaps/treasure", "/clusters/{o}/api/v1/namespaces/..%2f{v}/configmaps",
		"/clusters/{o}/api/v1/namespaces/default/configmaps/..%2f..%2f{v}%2fdefault%2ftreasure", "/clusters/{o}/api/v1/proxy/namespaces/default/configmaps/treasure",
		"/clusters/{o}/livez/../../{v}/" + treasure, "/livez/../clusters/{v}/" + treasure, "/readyz/%2e%2e/clusters/{v}/" + treasure,
		"https://{host}/clusters/{v}/" + treasure, "http://elsewhere/clusters/{v}/" + treasure, "https://{host}//clusters/{v}/" + treasure,
		"/shards/root/clusters/{v}/" + treasure, "/shards/eu1/clusters/{v}/" + treasure, "/shards/root//clusters/{v}/" + treasure, "/shards/eu1/clusters/*/api/v1/secrets",
		"/shards/root/clusters/system:admin/api/v1/secrets", "/shards/..%2f/clusters/{v}/" + treasure, "/shards/eu1/shards/root/clusters/{v}/" + treasure,
		"/services/apiexport/{v}/x/clusters/*/api/v1/configmaps", "/clusters/{v}\\..\\{o}/" + treasure, "/clusters/{v}%5c/" + treasure, "/clusters/%7bv%7d/" + treasure,
	} {
		out = append(out, hostile{what: "path " + path, path: path, want: noRequest})
	}
	return append(out,
		hostile{what: "CONNECT", method: http.MethodConnect, path: "/clusters/{v}/" + treasure, want: notAllowed},
		// net/http answers it
		hostile{what: "OPTIONS *", method: http.MethodOptions, path: "*", want: append([]int{http.StatusOK}, notAllowed...)},
	)
}

// headers are those that servers believe of others than clients.
func headers() (out []hostile) {
	for _, header := range [][]string{
		{"X-Remote-User: {vn}"}, {"X-Remote-User: admin", "X-Remote-Group: system:masters"}, {"x-remote-user: {vn}", "x-remote-extra-a: b"},
		{"X-Remote-User: {vn}", "Connection: Authorization"}, {"Connection: Authorization, X-Remote-User, close"}, {"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="},
		{"Connection: Upgrade", "Upgrade: SPDY/3.1"}, {"Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"},
		{"X-Kubernetes-Cluster: {o}"}, {"X-Forwarded-Uri: " + inOwn + "configmaps"}, {"X-Original-URL: " + inOwn + "configmaps"}, {"X-HTTP-Method-Override: PUT"},
		{"X-Forwarded-For: 127.0.0.1", "X-Forwarded-Host: localhost", "X-Real-Ip: 127.0.0.1"}, {"Host: {o}"}, {"Regent-Fencing-Token: 1"}, {"Fencing-Token: 99999"},
		{"In-Process: yes"}, {"X-Regent-User: system:regent:leader"}, {"Accept: */*;q=0"}, {"Audit-ID: 00000000-0000-0000-0000-000000000000"},
		{"Cookie: token={vn}"}, {"Forwarded: for=127.0.0.1;host=localhost"}, {"X-Remote-Uid: 1", "X-Remote-Group: system:regent:members"},
	} {
		want := []int{403, 406}
		if slices.Contains(header, "Upgrade: websocket") {
			want = append(want, 400) // a front passes none on
		}
		out = append(out, hostile{what: "header " + header[0], path: inVictims + "configmaps/treasure", header: header, want: want})
	}
	const who = "Authorization: Bearer "
	return append(out,
		hostile{what: "two tokens, the victim's second", path: inVictims + "configmaps/treasure", header: []string{who + "{on}", who + "{vt}"}, token: "-", want: []int{400, 401, 403}},
		hostile{what: "a token that is two", path: inVictims + "configmaps/treasure", token: "{on}, Bearer x", want: []int{401, 403}},
		hostile{what: "an empty token, then one's own", path: inVictims + "configmaps/treasure", header: []string{"Authorization: ", who + "{on}"}, token: "-", want: []int{400, 401, 403}},
		hostile{what: "chunked and with a length", method: "POST", path: inVictims + "configmaps", header: []string{"Transfer-Encoding: chunked"}, body: `0` + "\r\n\r\nGET " + inVictims, want: []int{400, 403}},
	)
}

// impersonations are refused where the attacker is nobody. In a cluster of its own it may be whomever it likes, and is
// somebody there only.
func impersonations() (out []hostile) {
	const as = "Impersonate-User: "
	for _, header := range [][]string{
		{as + "{vn}"}, {as + "{vn}", "Impersonate-Group: system:authenticated"}, {as + "{on}"}, {as + "admin", "Impersonate-Group: system:masters"}, {as + "system:admin"},
		{as + "system:regent:leader"}, {as + "system:regent:replica"}, {as + "x", "Impersonate-Group: system:regent:x"}, {as + "{vn}", "Impersonate-Uid: 2"},
		{as + "system:serviceaccount:default:bot"}, {as + "system:serviceaccount:default:bot", "Impersonate-Extra-authentication.kcp.io%2Fcluster-name: {v}"},
		{as + "{vn}", "Impersonate-Extra-Authentication.kcp.io%2fcluster-name: {v}"}, {"Impersonate-Group: system:masters"}, {"Impersonate-Uid: 2"},
		{as + "{vn}", as + "{on}"}, {as}, {as + "system:anonymous"}, {as + "x", "Impersonate-Group: system:cluster:{v}:default:bot"},
	} {
		out = append(out, hostile{what: "impersonate " + header[0], path: inVictims + "secrets/treasure", header: header, want: []int{400, 403, 500}})
	}
	for _, path := range []string{"/clusters/system:admin/api/v1/secrets", "/clusters/root/api/v1/secrets", "/clusters/*/api/v1/secrets", "/metrics"} {
		out = append(out, hostile{what: "impersonate in " + path, path: path, header: []string{as + "{vn}", "Impersonate-Group: system:masters"}, want: noRequest})
	}
	for _, header := range [][]string{
		{as + "{on}", "Impersonate-Group: system:masters"}, {as + "system:regent:leader"}, {as + "{vn}", "Impersonate-Group: system:masters", "Impersonate-Group: system:authenticated"},
	} {
		out = append(out, hostile{what: "become a master in one's own cluster", path: inOwn + "secrets", header: header, want: forbidden})
	}
	return append(out, hostile{
		what: "found a workspace as the victim", method: "POST", path: "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces", header: []string{as + "{vn}"},
		body: `{"metadata":{"name":"in-his-name"}}`, want: forbidden,
	})
}

// credentials are tokens where they are nobody's.
func credentials() []hostile {
	const treasure = inVictims + "secrets/treasure"
	unsigned := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"system:serviceaccount:default:bot"}`)) + "."
	return []hostile{
		{what: "nobody", path: treasure, token: "-", want: nobody},
		{what: "an unknown token", path: treasure, token: "guess", want: nobody},
		{what: "one's own account", path: treasure, token: "{ot}", want: forbiddenOrNobody},
		{what: "one's own account, writing", method: "DELETE", path: treasure, token: "{ot}", want: forbiddenOrNobody},
		{what: "one's own account in root", path: "/clusters/root/api/v1/secrets", token: "{ot}", want: forbiddenOrNobody},
		{what: "one's own account over all", path: "/clusters/*/api/v1/secrets", token: "{ot}", want: []int{400, 401, 403}},
		{what: "one's own account impersonates", path: treasure, token: "{ot}", header: []string{"Impersonate-User: {vn}"}, want: forbiddenOrNobody},
		{what: "the victim's account here", path: inOwn + "secrets", token: "{vt}", want: forbiddenOrNobody},
		{what: "a deleted account of the victim's", path: treasure, token: "{vg}", want: nobody},
		{what: "a deleted account of one's own", path: inOwn + "secrets", token: "{og}", want: nobody},
		{what: "an unsigned token", path: treasure, token: unsigned, want: nobody},
		{what: "a token that was cut", path: treasure, token: "{vt}A", want: nobody},
		{what: "another scheme", path: treasure, token: "-", header: []string{"Authorization: Basic {vn}:{vn}"}, want: nobody},
		{what: "a token in the query", path: treasure + "?access_token={vt}&token={vt}", token: "-", want: nobody},
		{what: "a token as a protocol", path: treasure, token: "-", header: []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.Ym9i"}, want: nobody},
	}
}

// A shard knows the accounts of its own clusters only.
var forbiddenOrNobody = []int{http.StatusForbidden, http.StatusUnauthorized}

// lists ask one's own cluster, with what was made for the other's.
func lists() (out []hostile) {
	forged := func(start string) string {
		return base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":1,"start":"` + start + `"}`))
	}
	for _, query := range []string{
		"limit=1&continue={vc}", "continue={vc}", "continue=" + forged("../../{v}/default/"), "limit=500&continue=" + forged("/../../{v}/default/treasure\\u0000"),
		"continue=" + forged("../../../../"), "resourceVersion={vr}", "resourceVersion={vr}&resourceVersionMatch=Exact&limit=1", "watch=true&resourceVersion={vr}",
		"watch=true&resourceVersion=1", "resourceVersion=1&resourceVersionMatch=Exact", "fieldSelector=metadata.uid%3D{vu}", "fieldSelector=metadata.namespace%3D..%2F{v}",
		"fieldSelector=metadata.namespace%21%3Ddefault", "labelSelector=kcp.io%2Fcluster%3D{v}", "shardSelector={v}", "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
		"cluster={v}", "namespace=..", "allNamespaces=true", "fieldSelector=metadata.annotations.kcp.io%2Fcluster%3D{v}",
	} {
		for _, of := range []string{inOwn + "configmaps", "/clusters/{o}/api/v1/configmaps", "/clusters/{o}/api/v1/secrets"} {
			out = append(out, hostile{what: "list " + of + "?" + query, path: of + "?" + query, want: harmless})
		}
	}
	return out
}

// ofProcess are endpoints of the process.
func ofProcess() (out []hostile) {
	for _, path := range []string{
		"/metrics", "/metrics/slis", "/debug/pprof/", "/debug/pprof/heap", "/debug/flags/v", "/election", "/election/status", "/configz", "/logs", "/statusz", "/flagz",
		"/shards/root/metrics", "/shards/eu1/metrics", "/shards/eu1/debug/pprof/heap", "/shards/root/election/status", "/clusters/system:admin/metrics", "/version/../metrics",
	} {
		out = append(out, hostile{what: "process " + path, path: path, want: noRequest})
	}
	for _, path := range []string{"/election/step-down", "/shards/root/election/step-down", "/shards/eu1/election/step-down", "/clusters/{o}/election/step-down", "/clusters/{v}/election/step-down"} {
		out = append(out, hostile{what: "step down by " + path, method: "POST", path: path, want: noRequest})
	}
	return append(out, hostile{what: "the log's level", method: "PUT", path: "/debug/flags/v", body: "10", want: noRequest})
}

// system are the clusters of the shards themselves.
func system() (out []hostile) {
	for _, prefix := range []string{"", "/shards/root", "/shards/eu1"} {
		for _, cluster := range []string{"system:admin", "system:shards", "system:none"} {
			base := prefix + "/clusters/" + cluster
			for _, c := range []hostile{
				{path: base + "/api/v1/secrets"}, {path: base + "/apis"}, {path: base + "/apis/coordination.k8s.io/v1/leases"},
				{method: "PATCH", path: base + "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/regent-controllers", body: `{"spec":{"holderIdentity":"me"}}`, header: []string{"Content-Type: application/merge-patch+json"}},
				{method: "DELETE", path: base + "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/regent-controllers"},
				{method: "POST", path: base + "/apis/core.kcp.io/v1alpha1/shards", body: `{"metadata":{"name":"evil"}}`},
				{method: "POST", path: base + "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", body: `{"metadata":{"name":"me"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"{on}"}]}`},
			} {
				c.what, c.want = c.method+" "+c.path, noRequest
				out = append(out, c)
			}
		}
	}
	return out
}

// inRoot is what a user who may create and get workspaces there tries with them.
func inRoot() (out []hostile) {
	const base = "/clusters/root/apis/tenancy.kcp.io/v1alpha1/workspaces"
	merge := []string{"Content-Type: application/merge-patch+json"}
	for what, body := range map[string]string{
		"cluster":   `{"metadata":{"name":"evil"},"spec":{"cluster":"{v}"}}`,
		"URL":       `{"metadata":{"name":"evil"},"spec":{"URL":"https://{host}/clusters/{v}"}}`,
		"adoption":  `{"metadata":{"name":"evil","annotations":{"regent.dev/adopt":"{v}"}},"spec":{"cluster":"{v}"}}`,
		"owner":     `{"metadata":{"name":"evil","annotations":{"experimental.tenancy.kcp.io/owner":"{\"username\":\"{vn}\"}"}}}`,
		"phase":     `{"metadata":{"name":"evil"},"status":{"phase":"Ready"},"spec":{"cluster":"{v}"}}`,
		"shard":     `{"metadata":{"name":"evil","labels":{"regent.dev/shard":"root"}}}`,
		"finalizer": `{"metadata":{"name":"evil","namespace":"default"},"spec":{"cluster":"root"}}`,
	} {
		out = append(out, hostile{what: "a workspace with a " + what, method: "POST", path: base, body: body, want: notAllowed})
	}
	for what, body := range map[string]string{
		"cluster": `{"spec":{"cluster":"{o}"}}`, "owner": `{"metadata":{"annotations":{"experimental.tenancy.kcp.io/owner":"{\"username\":\"{on}\"}"}}}`, "finalizers": `{"metadata":{"finalizers":null}}`,
	} {
		out = append(out, hostile{what: "the victim's workspace's " + what, method: "PATCH", path: base + "/{vn}s", body: body, header: merge, want: forbidden},
			hostile{what: "one's own workspace's " + what, method: "PATCH", path: base + "/{on}s", body: body, header: merge, want: forbidden})
	}
	for _, c := range []hostile{
		{method: "DELETE", path: base + "/{vn}s"}, {method: "DELETE", path: base}, {method: "PUT", path: base + "/{vn}s/status", body: `{}`}, {path: base}, {path: base + "?watch=true"},
		{path: base + "?watch=true&fieldSelector=metadata.name%3D{vn}s"}, {path: "/clusters/root/apis/core.kcp.io/v1alpha1/shards"}, {method: "POST", path: "/clusters/root/apis/core.kcp.io/v1alpha1/shards", body: `{"metadata":{"name":"evil"}}`},
		{method: "PATCH", path: "/clusters/root/apis/core.kcp.io/v1alpha1/shards/eu1", body: `{"spec":{"baseURL":"https://evil"}}`, header: merge},
		{method: "DELETE", path: "/clusters/root/apis/core.kcp.io/v1alpha1/shards/eu1"}, {method: "DELETE", path: "/clusters/root/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"},
		{path: "/clusters/root/api/v1/namespaces/default/configmaps"},
	} {
		c.what, c.want = "in root: "+c.method+" "+c.path, forbidden
		out = append(out, c)
	}
	return append(out,
		hostile{what: "a workspace of the victim's name", method: "POST", path: base, body: `{"metadata":{"name":"{vn}s"}}`, want: []int{http.StatusConflict, http.StatusForbidden}},
		hostile{what: "applying onto the victim's workspace", method: "PATCH", path: base + "/{vn}s?fieldManager=x&force=true", body: `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"{vn}s"},"spec":{"cluster":"{o}"}}`, header: []string{"Content-Type: application/apply-patch+yaml"}, want: forbidden},
	)
}

// inOwnCluster is what an administrator of one cluster does there to get at another one.
func inOwnCluster() (out []hostile) {
	merge := []string{"Content-Type: application/merge-patch+json"}
	const lc = "/clusters/{o}/apis/core.kcp.io/v1alpha1/logicalclusters"
	for what, patch := range map[string]string{
		"owner":    `{"spec":{"owner":{"apiVersion":"tenancy.kcp.io/v1alpha1","resource":"workspaces","cluster":"root","name":"{vn}s","uid":"{vu}"}}}`,
		"path":     `{"metadata":{"annotations":{"kcp.io/path":"{vp}"}}}`,
		"creator":  `{"metadata":{"annotations":{"experimental.tenancy.kcp.io/owner":"{\"username\":\"{vn}\"}"}}}`,
		"quota":    `{"metadata":{"annotations":{"quota.regent.dev/max-objects":"1000000","quota.regent.dev/max-bytes":"1Ti"}}}`,
		"cluster":  `{"metadata":{"annotations":{"kcp.io/cluster":"{v}"},"labels":{"regent.dev/owner-shard":"eu1"}}}`,
		"contents": `{"metadata":{"finalizers":[]}}`,
	} {
		want := forbidden
		if what != "quota" { // some are refused because nobody at all may change them
			want = []int{400, 403, 422}
		}
		out = append(out, hostile{what: "one's own cluster's " + what, method: "PATCH", path: lc + "/cluster", body: patch, header: merge, want: want})
	}
	owned := `{"metadata":{"generateName":"owned-","labels":{"attack":"owner"},"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"another","uid":"{vu}","controller":true,"blockOwnerDeletion":true}]}}`
	return append(out,
		hostile{what: "a second LogicalCluster", method: "POST", path: lc, body: `{"metadata":{"name":"another"}}`, want: notAllowed},
		hostile{what: "an object that the victim's owns", method: "POST", path: inOwn + "configmaps", body: owned, want: harmless},
		hostile{what: "an object of another cluster", method: "POST", path: inOwn + "configmaps", body: `{"metadata":{"generateName":"a-","annotations":{"kcp.io/cluster":"{v}"}}}`, want: harmless},
		hostile{what: "an object with the victim's uid", method: "PUT", path: inOwn + "configmaps/another", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"another","uid":"{vu}"}}`, want: []int{403, 409, 422}},
		hostile{what: "deleting by the victim's uid", method: "DELETE", path: inOwn + "configmaps/another", body: `{"preconditions":{"uid":"{vu}"}}`, want: []int{403, 409}},
		hostile{what: "a name that is a path", method: "POST", path: inOwn + "configmaps", body: `{"metadata":{"name":"../../{v}/default/planted"}}`, want: []int{403, 422}},
		hostile{what: "a generated name that is a path", method: "POST", path: inOwn + "configmaps", body: `{"metadata":{"generateName":"../../{v}/default/"}}`, want: []int{403, 422}},
		hostile{what: "a namespace that is a path", method: "POST", path: "/clusters/{o}/api/v1/namespaces", body: `{"metadata":{"name":"../{v}"}}`, want: []int{403, 422}},
		hostile{what: "a role whose name is a path", method: "POST", path: "/clusters/{o}/apis/rbac.authorization.k8s.io/v1/clusterroles", body: `{"metadata":{"name":"../{v}/planted"},"rules":[]}`, want: []int{403, 422}},
		hostile{what: "a child workspace with the victim's cluster", method: "POST", path: "/clusters/{o}/apis/tenancy.kcp.io/v1alpha1/workspaces", body: `{"metadata":{"name":"evil"},"spec":{"cluster":"{v}"}}`, want: notAllowed},
		hostile{what: "a child workspace of somebody else", method: "POST", path: "/clusters/{o}/apis/tenancy.kcp.io/v1alpha1/workspaces", body: `{"metadata":{"name":"evil","annotations":{"experimental.tenancy.kcp.io/owner":"{\"username\":\"admin\",\"groups\":[\"system:masters\"]}"}}}`, want: notAllowed},
		hostile{what: "a Shard", method: "POST", path: "/clusters/{o}/apis/core.kcp.io/v1alpha1/shards", body: `{"metadata":{"name":"evil"},"spec":{"baseURL":"https://evil"}}`, want: notAllowed},
		hostile{what: "an election of one's own", method: "POST", path: "/clusters/{o}/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", body: `{"metadata":{"name":"regent-controllers"},"spec":{"holderIdentity":"me"}}`, want: harmless},
		hostile{what: "whose the victim's account's token is", method: "POST", path: "/clusters/{o}/apis/authentication.k8s.io/v1/tokenreviews", body: `{"spec":{"token":"{vt}"}}`, token: "{ot}", want: append([]int{401}, harmless...)},
		hostile{what: "a built-in role's rules", method: "PUT", path: "/clusters/{o}/apis/rbac.authorization.k8s.io/v1/clusterroles/view", body: `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"view"},"rules":[]}`, want: forbidden},
	)
}
