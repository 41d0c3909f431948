package custom

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/apis"
	"github.com/regent-project/regent/pkg/server/apis/openapi"
	"github.com/regent-project/regent/pkg/server/storage"
	"github.com/regent-project/regent/pkg/server/webhooks"
	"github.com/regent-project/regent/test/etcdtest"
	"github.com/regent-project/regent/test/until"
)

// world is a server of custom resources over an etcd of its own, without authentication and without built-in resources.
// Tests say what the clusters define.
type world struct {
	url      string
	handler  http.Handler
	server   *Server
	contents *Contents

	own atomic.Bool // requests are those of a controller of this process

	mu       sync.Mutex
	defined  map[logicalcluster.Name]map[string]*testDefinition
	everyone map[string]*testDefinition
}

// testDefinition is a definition that a test has made, and what ends when it changes.
type testDefinition struct {
	*Definition
	end context.CancelFunc
}

func newWorld(t testing.TB) *world {
	t.Helper()
	client, err := storage.NewClient(storage.Config{Transport: etcdtest.Start(t), Prefix: "/registry"})
	if err != nil {
		t.Fatal(err)
	}
	schemas, err := openapi.Metadata(apis.Scheme)
	if err != nil {
		t.Fatal(err)
	}
	loopback, err := webhooks.ParseNetworks([]string{"127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{defined: map[logicalcluster.Name]map[string]*testDefinition{}, everyone: map[string]*testDefinition{}}
	stored, err := Open(storage.NewRESTOptionsGetter(client, func(schema.GroupResource) (storage.Encoding, error) { return Encoding(), nil }))
	if err != nil {
		t.Fatal(err)
	}
	server := NewServer(stored, HandlerConfig{
		Admission: Terminating{}, Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer(), Internal: func(context.Context) bool { return w.own.Load() },
		RequestTimeout: time.Minute, MinRequestTimeout: time.Minute, MaxRequestBytes: 1 << 20, Webhooks: loopback, Schemas: schemas,
	})
	w.server, w.contents = server, stored.Contents
	served := server.Wrap(w, func(group string) bool { return group == "built.in" }, http.HandlerFunc(builtIn))
	w.handler = filters.WithWarningRecorder(inCluster(served))
	listener := httptest.NewServer(w.handler)
	w.url = listener.URL
	t.Cleanup(func() {
		listener.CloseClientConnections()
		listener.Close()
		server.EndCalls()
		stored.Close()
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	until.So(t, "the watch cache is filled", func() bool { return stored.Ready() == nil })
	return w
}

// builtIn answers as a server does that has one group.
func builtIn(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case req.URL.Path == "/apis" && strings.Contains(req.Header.Get("Accept"), "APIGroupDiscoveryList"):
		_, _ = io.WriteString(w, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{"name":"built.in"},"versions":[{"version":"v1"}]}]}`)
	case req.URL.Path == "/apis":
		_, _ = io.WriteString(w, `{"kind":"APIGroupList","groups":[{"name":"built.in","versions":[{"groupVersion":"built.in/v1","version":"v1"}]}]}`)
	case req.URL.Path == "/openapi/v3":
		_, _ = io.WriteString(w, `{"paths":{"apis/built.in/v1":{"serverRelativeURL":"/openapi/v3/apis/built.in/v1?hash=1"}}}`)
	case req.URL.Path == "/openapi/v2":
		_, _ = io.WriteString(w, `{"swagger":"2.0","info":{"title":"built in","version":"1"},"paths":{"/apis/built.in/v1/":{}},"definitions":{"in.built.v1.Thing":{"type":"object"}}}`)
	default:
		http.Error(w, "nobody serves it", http.StatusNotFound)
	}
}

func inCluster(next http.Handler) http.Handler {
	infos := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name, path, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/clusters/"), "/")
		url := *req.URL
		url.Path, url.RawPath = "/"+path, ""
		req.URL, req.RequestURI = &url, url.RequestURI()
		info, err := infos.NewRequestInfo(req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ctx := audit.WithAuditContext(req.Context())
		ctx = request.WithRequestInfo(clusters.With(ctx, logicalcluster.Name(name)), info)
		ctx = request.WithReceivedTimestamp(request.WithUser(ctx, &user.DefaultInfo{Name: "me"}), time.Now())
		next.ServeHTTP(w, req.WithContext(ctx))
	})
}

// define has a cluster say something, in place of what it has said of the resource. It returns the definition.
func (w *world) define(t testing.TB, cluster logicalcluster.Name, d *apiextensionsv1.CustomResourceDefinition) *Definition {
	t.Helper()
	content, err := w.contents.Of(&d.Spec, &d.Status.AcceptedNames)
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.defined[cluster] == nil {
		w.defined[cluster] = map[string]*testDefinition{}
	}
	if before := w.defined[cluster][d.Name]; before != nil {
		before.end()
	}
	now := &testDefinition{Definition: &Definition{Content: content, Terminating: d.DeletionTimestamp != nil}}
	now.changed, now.end = begin()
	w.defined[cluster][d.Name] = now
	return now.Definition
}

// Definition implements Source.
func (w *world) Definition(_ context.Context, cluster logicalcluster.Name, resource schema.GroupResource) (*Definition, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := w.defined[cluster][resource.String()]; d != nil {
		return d.Definition, nil
	}
	return nil, nil
}

// Definitions implements Source.
func (w *world) Definitions(cluster logicalcluster.Name) (all []*Definition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.defined[cluster] {
		all = append(all, d.Definition)
	}
	slices.SortFunc(all, func(a, b *Definition) int {
		return strings.Compare(a.spec.Group+" "+a.names.Plural, b.spec.Group+" "+b.names.Plural)
	})
	return all
}

// Everywhere implements Source.
func (w *world) Everywhere(resource schema.GroupResource) Everywhere {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := Everywhere{}
	for _, cluster := range slices.Sorted(maps.Keys(w.defined)) {
		if d := w.defined[cluster][resource.String()]; d != nil && !slices.Contains(out.Contents, d.Content) {
			out.Contents = append(out.Contents, d.Content)
		}
	}
	return out
}

// do makes a request, and returns its status and its answer.
func (w *world) do(t *testing.T, method, path, contentType, body string) (int, map[string]any) {
	t.Helper()
	return w.accept(t, method, path, "", contentType, body)
}

// accept makes a request for a form of an answer. It fails on the test's goroutine only.
func (w *world) accept(t *testing.T, method, path, accept, contentType, body string) (int, map[string]any) {
	t.Helper()
	code, out, err := w.send(t, method, path, accept, contentType, body)
	if err != nil {
		t.Fatal(err)
	}
	return code, out
}

// raw makes a request, and returns what there is beside the answer's body.
func (w *world) raw(t *testing.T, method, path, accept, contentType, body string) *http.Response {
	t.Helper()
	resp, err := w.begin(t, method, path, accept, contentType, body)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp
}

// storedVersions returns in how many of its versions a cluster's objects are stored.
func (w *world) storedVersions(t *testing.T, cluster logicalcluster.Name) map[string]int {
	t.Helper()
	found, out := &objectList{}, map[string]int{}
	if err := w.server.stored.store.GetList(clusters.With(t.Context(), cluster), Prefix, everything(metav1.ListOptions{}), found); err != nil {
		t.Fatal(err)
	}
	for i := range found.Items {
		out[found.Items[i].APIVersion]++
	}
	return out
}

func (w *world) begin(t *testing.T, method, path, accept, contentType, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(t.Context(), method, w.url+"/clusters/"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	return http.DefaultClient.Do(req)
}

// send makes a request on any goroutine.
func (w *world) send(t *testing.T, method, path, accept, contentType, body string) (int, map[string]any, error) {
	resp, err := w.begin(t, method, path, accept, contentType, body)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, err
	}
	out := map[string]any{}
	if err := json.Unmarshal(raw, &out); err != nil {
		out["text"] = string(raw)
	}
	return resp.StatusCode, out, nil
}

func (w *world) create(t *testing.T, path, body string) map[string]any {
	t.Helper()
	code, out := w.do(t, http.MethodPost, path, "application/json", body)
	if code != http.StatusCreated {
		t.Fatalf("POST %s: %d %v", path, code, out)
	}
	return out
}

func (w *world) get(t *testing.T, path string) map[string]any {
	t.Helper()
	code, out := w.do(t, http.MethodGet, path, "", "")
	if code != http.StatusOK {
		t.Fatalf("GET %s: %d %v", path, code, out)
	}
	return out
}

// watch returns the events of a watch, as "ADDED a". The channel is closed when the watch ends.
func (w *world) watch(t *testing.T, path string) <-chan string {
	t.Helper()
	events := make(chan string, 100)
	w.follow(t, path, func() { close(events) }, func(line []byte) {
		var event struct {
			Type   string
			Object struct {
				Metadata metav1.ObjectMeta
				Message  string
			}
		}
		if err := json.Unmarshal(line, &event); err != nil {
			events <- "garbage " + string(line)
			return
		}
		events <- strings.TrimSpace(event.Type + " " + event.Object.Metadata.Name + event.Object.Message)
	})
	return events
}

// watchRaw returns the events of a watch.
func (w *world) watchRaw(t *testing.T, path string) <-chan map[string]any {
	t.Helper()
	events := make(chan map[string]any, 100)
	w.follow(t, path, func() { close(events) }, func(line []byte) {
		event := map[string]any{}
		if err := json.Unmarshal(line, &event); err != nil {
			event["text"] = string(line)
		}
		events <- event
	})
	return events
}

// follow calls each for every line of a watch, and then end.
func (w *world) follow(t *testing.T, path string, end func(), each func([]byte)) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/clusters/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("watch %s: %d", path, resp.StatusCode)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		defer end()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			each(lines.Bytes())
		}
	})
	t.Cleanup(func() {
		_ = resp.Body.Close()
		reading.Wait()
	})
}

// touch changes an object in what nobody looks at, so that what was kept of it is no longer.
func (w *world) touch(t *testing.T, path string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{"touched":"t%d"}}}`, time.Now().UnixNano())
	if code, out := w.do(t, http.MethodPatch, path, "application/merge-patch+json", patch); code != http.StatusOK {
		t.Fatalf("PATCH %s: %d %v", path, code, out)
	}
}

// next returns the next n events of a watch.
func next(t *testing.T, events <-chan string, n int) (out []string) {
	t.Helper()
	for range n {
		select {
		case e, ok := <-events:
			if !ok {
				t.Fatalf("the watch has ended after %v", out)
			}
			out = append(out, e)
		case <-time.After(30 * time.Second):
			t.Fatalf("no event after %v", out)
		}
	}
	return out
}

// widgets is a definition of Widgets with a schema, in one version, whose field spec.color can be selected by.
func widgets(properties string) *apiextensionsv1.CustomResourceDefinition {
	d := &apiextensionsv1.CustomResourceDefinition{}
	text := fmt.Sprintf(`{
		"metadata": {"name": "widgets.example.com"},
		"spec": {
			"group": "example.com", "scope": "Namespaced", "conversion": {"strategy": "None"},
			"names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList", "shortNames": ["wd"]},
			"versions": [{
				"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
				"selectableFields": [{"jsonPath": ".spec.color"}],
				"schema": {"openAPIV3Schema": {"type": "object", "properties": {
					"spec": {"type": "object", "properties": {"color": {"type": "string"}%s}}, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
				}}}
			}]
		}
	}`, properties)
	if err := json.Unmarshal([]byte(text), d); err != nil {
		panic(err)
	}
	d.Status.AcceptedNames = d.Spec.Names
	return d
}

const widgetsIn = "/apis/example.com/v1/namespaces/default/widgets"

func widget(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q},"spec":%s}`, name, spec)
}
