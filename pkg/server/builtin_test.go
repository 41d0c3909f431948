package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/edge"
	"github.com/regent-project/regent/pkg/server/format"
	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/test/etcdtest"
)

const creatorAnnotation = `"annotations":{"experimental.tenancy.kcp.io/owner":"{\"username\":\"ann\"}"}`

// builtInShard is a replica whose new logical clusters have built-in objects, or one in the first format, where the
// same objects are stored as controllers store them.
type builtInShard struct {
	*replica
	stored bool
	ca     string
}

func startBuiltIn(t *testing.T, stored bool) *builtInShard {
	t.Helper()
	root := t.TempDir()
	cfg := config(t, root)
	cfg.TokenFile = write(t, filepath.Join(root, "tokens.csv"), "t-root,rita,4,system:masters\nt-ann,ann,5,\n")
	cfg.EmbeddedEtcd, cfg.Etcd = nil, etcdtest.Start(t)
	cfg.Limits = edge.Limits{}
	if stored {
		cfg.Formats = format.Formats{Version: "v0.2.0", Oldest: 1, Newest: 1, Since: "v0.1.0"}
	}
	r := startReplica(t, cfg)
	t.Cleanup(func() {
		if err := r.stop(t); err != nil {
			t.Error(err)
		}
	})
	until(t, "the replica is ready", func() bool { return r.get(t, "/readyz") == http.StatusOK })
	ca, err := os.ReadFile(filepath.Join(root, pkiDirectory, pki.CACertFile))
	if err != nil {
		t.Fatal(err)
	}
	return &builtInShard{r, stored, string(ca)}
}

// cluster makes a logical cluster, with stored objects if they are not built in.
func (s *builtInShard) cluster(t *testing.T, name string) {
	t.Helper()
	const group = "/apis/core.kcp.io/v1alpha1/logicalclusters"
	made := s.write(t, http.MethodPost, "/clusters/"+name+group, s.server.identity.InProcess.Leader, "application/json",
		`{"apiVersion":"core.kcp.io/v1alpha1","kind":"LogicalCluster","metadata":{"name":"cluster",`+creatorAnnotation+`}}`)
	if made.status != http.StatusCreated {
		t.Fatalf("cannot make logical cluster %s: %d %s", name, made.status, made.body)
	}
	if s.stored {
		for _, namespace := range clusters.Namespaces {
			s.leader(t, name, "/api/v1/namespaces?fieldManager=logicalcluster", fmt.Sprintf(`{"metadata":{"name":%q}}`, namespace))
		}
		s.leader(t, name, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings?fieldManager=logicalcluster",
			`{"metadata":{"name":"workspace-admin"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"ann"}],"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"}}`)
		status := s.write(t, http.MethodPatch, "/clusters/"+name+group+"/cluster/status", s.server.identity.InProcess.Leader, "application/merge-patch+json", `{"status":{"phase":"Ready"}}`)
		if status.status != http.StatusOK {
			t.Fatalf("%d %s", status.status, status.body)
		}
		for _, namespace := range clusters.Namespaces {
			s.leader(t, name, "/api/v1/namespaces/"+namespace+"/serviceaccounts?fieldManager=serviceaccount", `{"metadata":{"name":"default"}}`)
			data, _ := json.Marshal(s.ca)
			s.leader(t, name, "/api/v1/namespaces/"+namespace+"/configmaps?fieldManager=serviceaccount", `{"metadata":{"name":"kube-root-ca.crt"},"data":{"ca.crt":`+string(data)+`}}`)
		}
	}
	until(t, "ann may read", func() bool {
		return s.ask(t, http.MethodGet, "/clusters/"+name+"/api/v1/namespaces/default", "t-ann").status == http.StatusOK
	})
}

func (s *builtInShard) leader(t *testing.T, cluster, path, body string) {
	t.Helper()
	if got := s.post(t, cluster, path, s.server.identity.InProcess.Leader, body); got.status != http.StatusCreated {
		t.Fatalf("POST %s: %d %s", path, got.status, got.body)
	}
}

// step is one request of a script.
type step struct {
	method, path, body, contentType, accept string
	// held has the resourceVersion in a body, as %s, be that of the object at this path.
	held string
}

// answerTo returns the code, and the answer without what is random.
func (s *builtInShard) answerTo(t *testing.T, cluster, token string, of step) string {
	t.Helper()
	body := of.body
	if of.held != "" {
		var obj struct {
			Metadata struct{ ResourceVersion string }
		}
		got := s.ask(t, http.MethodGet, "/clusters/"+cluster+of.held, token)
		if err := json.Unmarshal([]byte(got.body), &obj); err != nil || obj.Metadata.ResourceVersion == "" {
			t.Fatalf("GET %s: %d %s", of.held, got.status, got.body)
		}
		body = fmt.Sprintf(body, obj.Metadata.ResourceVersion)
	}
	req, err := http.NewRequestWithContext(t.Context(), of.method, s.url+"/clusters/"+cluster+of.path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if of.contentType == "" {
		of.contentType = "application/json"
	}
	req.Header.Set("Content-Type", of.contentType)
	if of.accept != "" {
		req.Header.Set("Accept", of.accept)
	}
	got := s.do(t, req)
	return fmt.Sprintf("%d %s", got.status, s.plain(t, cluster, []byte(got.body)))
}

// plain returns JSON without what is random.
func (s *builtInShard) plain(t *testing.T, cluster string, raw []byte) string {
	t.Helper()
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	out, err := json.MarshalIndent(strip(value, ""), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	ca, _ := json.Marshal(s.ca)
	return random.ReplaceAllString(strings.NewReplacer(cluster, "<cluster>", strings.Trim(string(ca), `"`), "<authorities>").Replace(string(out)), "<random>")
}

// random matches what errors say of objects.
var random = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|ResourceVersion in object meta: [0-9]+|ResourceVersion in record \([0-9]+\)`)

func strip(value any, parent string) any {
	switch value := value.(type) {
	case map[string]any:
		// lists that etcd answers name the kind of each item, those of the watch cache do not
		if parent == "items" {
			delete(value, "kind")
			delete(value, "apiVersion")
		}
		for key, of := range value {
			switch {
			case slices.Contains([]string{"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "continue", "time"}, key):
				value[key] = "<" + key + ">"
			default:
				value[key] = strip(of, key)
			}
		}
		// They are sorted by second.
		if managed, ok := value["managedFields"].([]any); ok {
			slices.SortFunc(managed, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		// The row of a table ends with an age.
		if cells, ok := value["cells"].([]any); ok {
			for n, cell := range cells {
				if text, ok := cell.(string); ok && strings.HasSuffix(text, "s") && len(text) <= 3 {
					cells[n] = "<age>"
				}
			}
		}
	case []any:
		for n := range value {
			value[n] = strip(value[n], parent)
		}
	}
	return value
}

// builtInKind is one resource with built-in objects, and one of them.
type builtInKind struct {
	name, kind, group, collection, object string
	// patch is a change of the object, and spec what else a whole one has.
	patch, spec string
	deletable   bool
}

var builtInKinds = []builtInKind{
	{name: "namespaces", kind: "Namespace", group: "v1", collection: "/api/v1/namespaces", object: "default", patch: `{"metadata":{"labels":{"team":"blue"}}}`},
	{name: "serviceaccounts", kind: "ServiceAccount", group: "v1", collection: "/api/v1/namespaces/default/serviceaccounts", object: "default", patch: `{"metadata":{"labels":{"team":"blue"}}}`, deletable: true},
	{name: "configmaps", kind: "ConfigMap", group: "v1", collection: "/api/v1/namespaces/default/configmaps", object: "kube-root-ca.crt", patch: `{"metadata":{"labels":{"team":"blue"}},"data":{"more":"of it"}}`, deletable: true},
	{name: "clusterrolebindings", kind: "ClusterRoleBinding", group: "rbac.authorization.k8s.io/v1", collection: "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", object: "workspace-admin",
		patch: `{"metadata":{"labels":{"team":"blue"}},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"ann"},{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"ben"}]}`,
		spec:  `,"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"}`, deletable: true},
}

func (k builtInKind) head(metadata string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q%s}%s}`, k.group, k.kind, k.object, metadata, k.spec)
}

const (
	table    = "application/json;as=Table;v=v1;g=meta.k8s.io"
	metaOnly = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
	metaList = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	applied  = "application/apply-patch+yaml"
	merged   = "application/merge-patch+json"
)

// reads are all ways to read.
func (k builtInKind) reads() (all []step) {
	object := k.collection + "/" + k.object
	for _, accept := range []string{"", table, metaOnly} {
		all = append(all, step{method: http.MethodGet, path: object, accept: accept})
	}
	for _, accept := range []string{"", table, metaList} {
		all = append(all, step{method: http.MethodGet, path: k.collection, accept: accept})
	}
	for _, query := range []string{
		"limit=1", "limit=2", "limit=100", "resourceVersion=0", "labelSelector=team%3Dblue", "labelSelector=!team", "labelSelector=team%20notin%20(blue)",
		"fieldSelector=metadata.name%3D" + k.object, "fieldSelector=metadata.name!%3D" + k.object, "fieldSelector=metadata.name%3Dnone", "limit=1&labelSelector=!team",
	} {
		all = append(all, step{method: http.MethodGet, path: k.collection + "?" + query})
	}
	if strings.Contains(k.collection, "/namespaces/") {
		all = append(all, step{method: http.MethodGet, path: "/api/v1/" + k.name}, step{method: http.MethodGet, path: "/api/v1/" + k.name + "?limit=1"},
			step{method: http.MethodGet, path: "/api/v1/" + k.name + "?fieldSelector=metadata.namespace%3Dkube-system"})
	}
	return all
}

// writes are all ways to write, in an order in which each shows something.
func (k builtInKind) writes() (all []step) {
	object := k.collection + "/" + k.object
	dry := "?dryRun=All"
	all = append(all,
		step{method: http.MethodPost, path: k.collection, body: k.head("")},
		step{method: http.MethodPost, path: k.collection + dry, body: k.head("")},
		step{method: http.MethodPatch, path: object + dry, contentType: merged, body: k.patch},
		step{method: http.MethodPatch, path: object, contentType: merged, body: `{}`},
		step{method: http.MethodPatch, path: object, contentType: merged, body: `{"metadata":{"uid":"of-another"}}`},
		step{method: http.MethodPatch, path: object, contentType: merged, body: `{"metadata":{"resourceVersion":"1"}}`},
		step{method: http.MethodPatch, path: object, contentType: merged, body: `{"metadata":{"labels":{"no label":"!"}}}`},
		step{method: http.MethodPatch, path: object + "?fieldManager=someone" + "&dryRun=All", contentType: applied, body: k.head(`,"labels":{"team":"red"}`)},
		step{method: http.MethodDelete, path: object + dry},
		step{method: http.MethodDelete, path: object, body: `{"preconditions":{"uid":"of-another"}}`},
		step{method: http.MethodDelete, path: object, body: `{"preconditions":{"resourceVersion":"1"}}`},
		step{method: http.MethodPatch, path: object + "?fieldManager=someone", contentType: merged, held: object, body: strings.Replace(k.patch, `{"metadata":{`, `{"metadata":{"resourceVersion":%q,`, 1)},
		step{method: http.MethodPatch, path: object + "?fieldManager=someone", contentType: merged, body: k.patch},
		step{method: http.MethodPatch, path: object + "?fieldManager=another", contentType: applied, body: k.head(`,"labels":{"team":"red"}`)},
		step{method: http.MethodPatch, path: object + "?fieldManager=another&force=true", contentType: applied, body: k.head(`,"labels":{"team":"red"}`)},
	)
	if k.deletable {
		all = append(all,
			step{method: http.MethodDelete, path: object, held: object, body: `{"preconditions":{"resourceVersion":%q}}`},
			step{method: http.MethodGet, path: object},
			step{method: http.MethodDelete, path: object},
			step{method: http.MethodPatch, path: object, contentType: merged, body: k.patch},
			step{method: http.MethodGet, path: k.collection},
			step{method: http.MethodPost, path: k.collection, body: k.head(`,"labels":{"again":"yes"}`)},
			step{method: http.MethodPost, path: k.collection, body: k.head("")},
			step{method: http.MethodPatch, path: object, contentType: merged, body: `{"metadata":{"labels":{"again":"changed"}}}`},
			step{method: http.MethodGet, path: object},
			step{method: http.MethodPatch, path: object, contentType: merged, body: `{"metadata":{"finalizers":["example.com/mine"]}}`},
			step{method: http.MethodDelete, path: object},
			step{method: http.MethodPatch, path: object, contentType: merged, body: `{"metadata":{"finalizers":null}}`},
			step{method: http.MethodGet, path: object},
			step{method: http.MethodPut, path: object, body: k.head(`,"labels":{"again":"put"}`)},
			step{method: http.MethodGet, path: object},
		)
	}
	return append(all, step{method: http.MethodDelete, path: k.collection + "?labelSelector=again"}, step{method: http.MethodGet, path: k.collection})
}

// first are ways in which an object can be changed first, or deleted. Each is tried in a logical cluster of its own.
func (k builtInKind) first() map[string]step {
	object := k.collection + "/" + k.object
	ways := map[string]step{
		"patch": {method: http.MethodPatch, path: object, contentType: merged, body: k.patch},
		"apply": {method: http.MethodPatch, path: object + "?fieldManager=someone", contentType: applied, body: k.head(`,"labels":{"team":"blue"}`)},
		"put":   {method: http.MethodPut, path: object, held: object, body: k.head(`,"labels":{"team":"blue"},"resourceVersion":%q`)},
	}
	if k.deletable {
		ways["delete"] = step{method: http.MethodDelete, path: object}
		ways["delete collection"] = step{method: http.MethodDelete, path: k.collection}
		ways["finalizer"] = step{method: http.MethodPatch, path: object, contentType: merged, body: `{"metadata":{"finalizers":["example.com/mine"]}}`}
	}
	return ways
}

// watches are ways to watch.
func (k builtInKind) watches() map[string]string {
	return map[string]string{
		"from a list":      "from",
		"from the newest":  "",
		"from anything":    "resourceVersion=0",
		"initial events":   "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		"selects blue":     "from&labelSelector=team%3Dblue",
		"selects not blue": "from&labelSelector=team!%3Dblue",
		"selects by name":  "fieldSelector=metadata.name%3D" + k.object,
	}
}

// watch begins a watch. The function returns its events up to one of an object that says that this is the end.
func (s *builtInShard) watch(t *testing.T, cluster, collection, query string) (collect func(end string) []string) {
	t.Helper()
	if rest, ok := strings.CutPrefix(query, "from"); ok {
		var list struct {
			Metadata struct{ ResourceVersion string }
		}
		got := s.ask(t, http.MethodGet, "/clusters/"+cluster+collection, "t-root")
		if err := json.Unmarshal([]byte(got.body), &list); err != nil {
			t.Fatal(err)
		}
		query = "resourceVersion=" + url.QueryEscape(list.Metadata.ResourceVersion) + rest
	}
	lines, stop := s.lines(t, "/clusters/"+cluster+collection+"?watch=true&"+query)
	return func(end string) (all []string) {
		defer stop()
		for line := range lines {
			if strings.Contains(line, `"end":"`+end+`"`) {
				return all
			}
			if plain := s.plain(t, cluster, []byte(line)); !strings.Contains(plain, `"type": "BOOKMARK"`) || strings.Contains(plain, "initial-events-end") {
				all = append(all, plain)
			}
		}
		t.Errorf("the watch of %s ended before the end %s came: %v", collection, end, all)
		return all
	}
}

// lines reads an answer that goes on, line by line, until stop is called, or the test ends. stop returns when the
// reader has ended.
func (s *builtInShard) lines(t *testing.T, path string) (lines <-chan string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer t-root")
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan string)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(out)
		defer func() { _ = resp.Body.Close() }()
		scanner := bufio.NewScanner(resp.Body)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			select {
			case out <- scanner.Text():
			case <-ctx.Done():
				return
			}
		}
	})
	stop = func() {
		cancel()
		reading.Wait()
	}
	t.Cleanup(stop)
	return out, stop
}

// What a logical cluster has from the beginning may be stored, as it was up to version 0.2, or built in. Whatever
// somebody asks, or does, gets the same answers but for what is random, and the same events.
func TestNobodyCanTellWhatIsBuiltInFromWhatIsStored(t *testing.T) {
	stored, builtIn := startBuiltIn(t, true), startBuiltIn(t, false)
	both := []*builtInShard{stored, builtIn}
	etcd := etcdtest.Client(t, builtIn.server.cfg.Etcd)
	made := 0
	fresh := func(t *testing.T) string {
		made++
		name := fmt.Sprintf("of-test-%d", made)
		for _, s := range both {
			s.cluster(t, name)
		}
		return name
	}
	same := func(t *testing.T, cluster string, of step) {
		t.Helper()
		if diff := cmp.Diff(stored.answerTo(t, cluster, "t-root", of), builtIn.answerTo(t, cluster, "t-root", of)); diff != "" {
			t.Errorf("%s %s (%s) %s: stored and built in differ:\n%s", of.method, of.path, of.accept, of.body, diff)
		}
	}
	cluster := fresh(t)
	kept, err := etcd.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range kept.Kvs {
		if key := string(kv.Key); strings.Contains(key, "/"+cluster+"/") && !strings.HasSuffix(key, "/cluster") {
			t.Errorf("%s is stored: this shows nothing", key)
		}
	}
	for _, k := range builtInKinds {
		t.Run(k.name, func(t *testing.T) {
			cluster := fresh(t)
			for _, read := range k.reads() {
				same(t, cluster, read)
			}
			for _, write := range k.writes() {
				same(t, cluster, write)
				for _, read := range k.reads()[:4] {
					same(t, cluster, read)
				}
			}
			for _, read := range k.reads() {
				same(t, cluster, read)
			}
			for _, name := range slices.Sorted(maps.Keys(k.first())) {
				t.Run("first "+name, func(t *testing.T) {
					cluster := fresh(t)
					before := builtIn.answerTo(t, cluster, "t-root", step{method: http.MethodGet, path: k.collection + "/" + k.object})
					collects := map[string][]func(string) []string{}
					for way, query := range k.watches() {
						for _, s := range both {
							collects[way] = append(collects[way], s.watch(t, cluster, k.collection, query))
						}
					}
					same(t, cluster, k.first()[name])
					for _, read := range k.reads() {
						same(t, cluster, read)
					}
					object := k.collection + "/" + k.object
					last := step{method: http.MethodPatch, path: object, contentType: merged, body: `{"metadata":{"labels":{"team":"blue"},"annotations":{"end":"of-blue"}}}`}
					if code := stored.ask(t, http.MethodGet, "/clusters/"+cluster+object, "t-root").status; code == http.StatusNotFound {
						last = step{method: http.MethodPost, path: k.collection, body: k.head(`,"labels":{"team":"blue"},"annotations":{"end":"of-blue"}`)}
					}
					same(t, cluster, last)
					same(t, cluster, step{method: http.MethodPatch, path: object, contentType: merged, body: `{"metadata":{"labels":{"team":"green"},"annotations":{"end":"of-all"}}}`})
					for _, way := range slices.Sorted(maps.Keys(collects)) {
						end := "of-all"
						if way == "selects blue" {
							end = "of-blue"
						}
						if diff := cmp.Diff(settled(collects[way][0](end), before), settled(collects[way][1](end), before)); diff != "" {
							t.Errorf("a watch that begins %s, or %s: the events of what is stored and built in differ:\n%s", way, way, diff)
						}
					}
				})
			}
		})
	}
}

// settled returns events without those that tell of no change: what is built in is stored as it is before its first
// change, and whoever watches hears of its new resourceVersion.
func settled(events []string, before string) (out []string) {
	_, before, _ = strings.Cut(before, " ")
	before = strings.Join(strings.Fields(before), "")
	for _, event := range events {
		if plain := strings.Join(strings.Fields(event), ""); !strings.HasPrefix(plain, `{"object":`+before) || !strings.Contains(plain, `"type":"MODIFIED"`) {
			out = append(out, event)
		}
	}
	return out
}
