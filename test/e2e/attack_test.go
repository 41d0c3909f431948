package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/test/e2e/harness"
	"github.com/regent-project/regent/test/e2e/history"
)

// attacked is an installation of two shards with a front, and the door of each process.
type attacked struct {
	*testing.T
	*harness.Installation
	front *harness.Front
	doors map[string]string // URLs, by the names of processes
	roots *x509.CertPool
}

// tenant is an ordinary user who has created a workspace. The token is the name.
type tenant struct {
	name, cluster, path string
	shard               *harness.ShardMember
	// What is in the workspace: the uid of ConfigMap treasure, a service account's token, that of an account which
	// was deleted since, the resourceVersion of a list, and the continue token of its first page.
	uid, bot, gone, version, more string
}

// hostage is the text that the ConfigMaps and Secrets of tenants hold. Nobody else may be shown it.
func (t *tenant) hostage() string { return "treasure-of-" + t.name }

func startAttacked(t *testing.T) *attacked {
	t.Helper()
	i := harness.Install(t, "eu1")
	tokens := "--token-auth-file=" + write(t, "tokens.csv", "ann,ann,1\nbob,bob,2\n")
	for _, m := range i.All() {
		m.KillReplicas()
		m.Args = append(m.Args, tokens)
		m.Again(t)
	}
	for _, m := range i.All() {
		m.WaitHeard(t, 1)
		if _, err := i.TryRegent("shard", "set", m.Name, "--label=at="+m.Name); err != nil {
			t.Fatal(err)
		}
	}
	a := &attacked{T: t, Installation: i, front: i.StartFront(), roots: x509.NewCertPool()}
	a.doors = map[string]string{"front": a.front.URL}
	for _, m := range i.All() {
		for _, r := range m.Replicas {
			a.doors[r.Name()] = r.URL
			pem, err := os.ReadFile(filepath.Join(r.Root, "pki", "ca.crt"))
			if err != nil {
				t.Fatal(err)
			}
			a.roots.AppendCertsFromPEM(pem)
		}
	}
	return a
}

// as returns the configuration of somebody with a token, for a cluster, through the front.
func (a *attacked) as(token, cluster string) *rest.Config {
	config := rest.AnonymousClientConfig(a.front.Config(cluster))
	config.BearerToken = token
	return config
}

// settle has an ordinary user create a workspace on a shard, and fill it.
func (a *attacked) settle(name string, on *harness.ShardMember) *tenant {
	a.Helper()
	t := &tenant{name: name, path: "root:" + name + "s", shard: on}
	a.letFound(name)
	ws := harness.NewWorkspace(name + "s")
	_ = unstructured.SetNestedField(ws.Object, on.Name, "spec", "location", "selector", "matchLabels", "at")
	inRoot, err := dynamic.NewForConfig(a.as(name, "root"))
	a.must(err)
	harness.Eventually(a.T, name+" has a workspace", func() bool {
		_, err := inRoot.Resource(harness.Workspaces).Create(a.Context(), ws, metav1.CreateOptions{})
		if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsAlreadyExists(err) {
			a.Error(err)
		}
		return err == nil || apierrors.IsAlreadyExists(err)
	})
	var shard string
	t.cluster, shard = awaitReady(a.T, a.Root.Replicas, "root", name+"s")
	if shard != on.Name {
		a.Fatalf("the workspace of %s is on shard %s", name, shard)
	}
	own, err := kubernetes.NewForConfig(a.as(name, t.path))
	a.must(err)
	harness.Eventually(a.T, name+" is in", func() bool {
		_, err := own.CoreV1().ServiceAccounts("default").Get(a.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	a.fill(t, own)
	return t
}

// letFound lets a user create workspaces in root, and nothing else.
func (a *attacked) letFound(name string) {
	a.Helper()
	client, err := kubernetes.NewForConfig(a.front.AdminConfig("root"))
	a.must(err)
	_, err = client.RbacV1().ClusterRoles().Create(a.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "founder"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"create", "get"}, APIGroups: []string{"tenancy.kcp.io"}, Resources: []string{"workspaces"}},
		{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}},
	}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		a.must(err)
	}
	_, err = harness.Bind(a.Context(), client, harness.User(name), "founder")
	a.must(err)
}

// fill puts into a workspace what attackers are after.
func (a *attacked) fill(t *tenant, own kubernetes.Interface) {
	a.Helper()
	ctx, core := a.Context(), own.CoreV1()
	for _, name := range []string{"treasure", "another"} {
		cm, err := core.ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": t.hostage()}}, metav1.CreateOptions{})
		a.must(err)
		t.uid = string(cm.UID)
	}
	_, err := core.Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "treasure"}, StringData: map[string]string{"a": t.hostage()}}, metav1.CreateOptions{})
	a.must(err)
	a.define(t)
	for account, token := range map[string]*string{"bot": &t.bot, "gone": &t.gone} {
		_, err := core.ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
		a.must(err)
		_, err = harness.Bind(ctx, own, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: account}, "cluster-admin")
		a.must(err)
		made, err := core.ServiceAccounts("default").CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		a.must(err)
		*token = made.Status.Token
	}
	a.must(core.ServiceAccounts("default").Delete(ctx, "gone", metav1.DeleteOptions{}))
	list, err := core.ConfigMaps("default").List(ctx, metav1.ListOptions{Limit: 1})
	a.must(err)
	t.version, t.more = list.ResourceVersion, list.Continue
	// Whoever attacks too early would be refused for another reason than a right that is missing.
	for _, r := range t.shard.Replicas {
		harness.Eventually(a.T, r.Name()+" knows the account, and that the other one is gone", func() bool {
			get := func(token string) int {
				status, _ := a.send(r.URL, &hostile{path: "/clusters/{o}/api/v1/namespaces/default/configmaps", token: token}, t, t)
				return status
			}
			return get(t.bot) == http.StatusOK && get(t.gone) == http.StatusUnauthorized && get(t.name) == http.StatusOK
		})
	}
}

// attackedWidgets are defined by all tenants, under the same name, in different ways.
var attackedWidgets = schema.GroupVersionResource{Group: "attack.example.com", Version: "v1", Resource: "widgets"}

// define has a tenant define Widgets, with defaults and a description that are a secret, and make some.
func (a *attacked) define(t *tenant) {
	a.Helper()
	own, err := dynamic.NewForConfig(a.as(t.name, t.path))
	a.must(err)
	of := definitionOf("Widget", "widgets")
	of.SetName(attackedWidgets.GroupResource().String())
	_ = unstructured.SetNestedField(of.Object, attackedWidgets.Group, "spec", "group")
	versions, _, _ := unstructured.NestedSlice(of.Object, "spec", "versions")
	_ = unstructured.SetNestedMap(versions[0].(map[string]any), map[string]any{"type": "object", "properties": map[string]any{
		"spec": map[string]any{"type": "object", "description": t.hostage(), "properties": map[string]any{
			"a": map[string]any{"type": "string"}, "given": map[string]any{"type": "string", "default": t.hostage()},
		}},
	}}, "schema", "openAPIV3Schema")
	_ = unstructured.SetNestedSlice(of.Object, versions, "spec", "versions")
	_, err = own.Resource(definitions).Create(a.Context(), of, metav1.CreateOptions{})
	a.must(err)
	for _, name := range []string{"treasure", "another"} {
		w := customObject("Widget", name)
		w.SetAPIVersion(attackedWidgets.GroupVersion().String())
		_ = unstructured.SetNestedField(w.Object, map[string]any{"a": t.hostage()}, "spec")
		harness.Eventually(a.T, t.name+" makes a custom object", func() bool {
			_, err := own.Resource(attackedWidgets).Namespace("default").Create(a.Context(), w.DeepCopy(), metav1.CreateOptions{})
			return err == nil || apierrors.IsAlreadyExists(err)
		})
	}
}

func (a *attacked) must(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

// hostile is one request of an attack. In all its texts {o} is the attacker's own cluster, {v} the victim's, {op} and
// {vp} their paths, {on} and {vn} their users, {vu} the uid of the victim's ConfigMap, {vt}, {vg} and {ot}, {og} tokens
// of their accounts, those of a deleted one second, {vr} and {vc} a version and a continue token of the victim's,
// {host} the host and port of the door.
type hostile struct {
	what   string
	method string // GET by default
	path   string // the request's target, as it is
	token  string // the attacker's own by default; "-": none
	header []string
	body   string
	// want are the answers that it may get.
	want []int
}

// stalls is how long an answer is read. Watches have no end.
const stalls = 250 * time.Millisecond

// send sends what no HTTP client would: the target and the headers are as the attempt says.
func (a *attacked) send(door string, at *hostile, attacker, victim *tenant) (status int, answer string) {
	a.Helper()
	u, err := url.Parse(door)
	a.must(err)
	fill := strings.NewReplacer("{o}", attacker.cluster, "{v}", victim.cluster, "{op}", attacker.path, "{vp}", victim.path, "{on}", attacker.name,
		"{vn}", victim.name, "{vu}", victim.uid, "{vt}", victim.bot, "{vg}", victim.gone, "{ot}", attacker.bot, "{og}", attacker.gone, "{vr}", victim.version,
		"{vc}", url.QueryEscape(victim.more), "{host}", u.Host)
	var request bytes.Buffer
	method := at.method
	if method == "" {
		method = http.MethodGet
	}
	fmt.Fprintf(&request, "%s %s HTTP/1.1\r\n", method, fill.Replace(at.path))
	header := slices.Clone(at.header)
	if !slices.ContainsFunc(header, func(h string) bool { return strings.HasPrefix(h, "Host:") }) {
		header = append(header, "Host: {host}")
	}
	switch at.token {
	case "-":
	case "":
		header = append(header, "Authorization: Bearer {on}")
	default:
		header = append(header, "Authorization: Bearer "+at.token)
	}
	body := fill.Replace(at.body)
	if body != "" && !slices.ContainsFunc(header, func(h string) bool { return strings.HasPrefix(h, "Content-Type:") }) {
		header = append(header, "Content-Type: application/json")
	}
	for _, h := range header {
		request.WriteString(fill.Replace(h) + "\r\n")
	}
	fmt.Fprintf(&request, "Content-Length: %d\r\n\r\n%s", len(body), body)
	conn, err := tls.Dial("tcp", u.Host, &tls.Config{RootCAs: a.roots, MinVersion: tls.VersionTLS12})
	a.must(err)
	defer func() { _ = conn.Close() }()
	_, err = conn.Write(request.Bytes())
	a.must(err)
	a.must(conn.SetReadDeadline(time.Now().Add(20 * time.Second)))
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		a.Errorf("%s: %s answers nothing: %v", at.what, door, err)
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode < 300 {
		a.must(conn.SetReadDeadline(time.Now().Add(stalls)))
	}
	read, _ := io.ReadAll(resp.Body) // of a watch, what came until the deadline
	return resp.StatusCode, string(read)
}

// recorded begins to record what happens on all shards, and returns a function that tells what has happened to a tenant
// since.
func (a *attacked) recorded(to *tenant) func() []string {
	a.Helper()
	recorders := map[string]*history.Recorder{}
	for _, m := range a.All() {
		recorders[m.Name] = history.Record(a.T, m.Etcd.Client(a.T), "/registry")
	}
	return func() (out []string) {
		for shard, r := range recorders {
			for _, e := range r.Finish(a.T) {
				if strings.Contains(e.Key, "/"+to.cluster+"/") || strings.HasSuffix(e.Key, "/workspaces/root/"+to.name+"s") {
					out = append(out, fmt.Sprintf("%s: %s (deleted: %v)", shard, e.Key, e.Deleted))
				}
			}
		}
		return out
	}
}

// mustKeep checks that a tenant finds what was there, and that the shards serve.
func (a *attacked) mustKeep(t *tenant) {
	a.Helper()
	own, err := kubernetes.NewForConfig(a.as(t.name, t.path))
	a.must(err)
	ctx, cancel := context.WithTimeout(a.Context(), 20*time.Second)
	defer cancel()
	cm, err := own.CoreV1().ConfigMaps("default").Get(ctx, "another", metav1.GetOptions{})
	a.must(err)
	if string(cm.UID) != t.uid || cm.Data["a"] != t.hostage() {
		a.Errorf("%s finds the object changed: %v", t.name, cm)
	}
	dynamically, err := dynamic.NewForConfig(a.as(t.name, t.path))
	a.must(err)
	for _, name := range []string{"treasure", "another"} {
		w, err := dynamically.Resource(attackedWidgets).Namespace("default").Get(ctx, name, metav1.GetOptions{})
		a.must(err)
		spec, _, _ := unstructured.NestedStringMap(w.Object, "spec")
		if spec["a"] != t.hostage() || spec["given"] != t.hostage() || w.GetGeneration() != 1 {
			a.Errorf("%s finds the custom object changed: %v", t.name, w)
		}
	}
}

// I14, "Must show" 2 of the issue about access: two tenants attack each other, through each replica of both shards and
// through the front.
func TestTenantsDoNotGetAtEachOtherWhateverTheySendI14(t *testing.T) {
	t.Parallel() // most of it is waiting
	a := startAttacked(t)
	ann, bob := a.settle("ann", a.Root), a.settle("bob", a.Others[0])
	sent, refused := 0, map[int]int{}
	for _, side := range []struct{ attacker, victim *tenant }{{ann, bob}, {bob, ann}} {
		since := a.recorded(side.victim)
		for name, door := range a.doors {
			for _, at := range attempts() {
				status, answer := a.send(door, &at, side.attacker, side.victim)
				sent++
				refused[status]++
				if !slices.Contains(at.want, status) {
					t.Errorf("%s attacks through %s: %s: %d, want %v: %.300s", side.attacker.name, name, at.what, status, at.want, answer)
				}
				if strings.Contains(answer, side.victim.hostage()) || strings.Contains(answer, `"authenticated":true`) {
					t.Errorf("%s is shown through %s what is the victim's: %s: %d %.300s", side.attacker.name, name, at.what, status, answer)
				}
			}
		}
		harness.Eventually(t, "the garbage of the attack is gone", func() bool {
			own, err := kubernetes.NewForConfig(a.as(side.attacker.name, side.attacker.path))
			a.must(err)
			list, err := own.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{LabelSelector: "attack=owner"})
			if err != nil || len(list.Items) > 0 {
				return false
			}
			inOwn, err := dynamic.NewForConfig(a.as(side.attacker.name, side.attacker.path))
			a.must(err)
			custom, err := inOwn.Resource(attackedWidgets).Namespace("default").List(t.Context(), metav1.ListOptions{LabelSelector: "attack=owner"})
			return err == nil && len(custom.Items) == 0
		})
		if happened := since(); len(happened) > 0 {
			t.Errorf("what %s did changed what is %s's: %q", side.attacker.name, side.victim.name, happened)
		}
		a.mustKeep(side.victim)
	}
	t.Logf("%d attempts, by their answers: %v", sent, refused)
}
