package installation

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/pki"
)

// fakeShard has the API of a shard: objects in clusters, conflicts, preconditions, finalizers and label selectors, as
// the server has them. It admits whatever is asked.
type fakeShard struct {
	url string

	mu       sync.Mutex
	objects  map[string]*unstructured.Unstructured // by URL path
	revision int
	// instead answers, if it is set. before is called with each request that changes anything, reading with each
	// other one.
	instead http.HandlerFunc
	// probe answers requests that are for no objects.
	probe   http.HandlerFunc
	reading func()
	before  func(req *http.Request)
	// changed is called with each object that was written.
	changed func(*unstructured.Unstructured)
}

func pathOfObject(cluster, group, resource, name string) string {
	return "/clusters/" + cluster + "/apis/" + group + "/v1alpha1/" + resource + "/" + name
}

// set creates or replaces an object of cluster.
func (f *fakeShard) set(t *testing.T, cluster string, obj clusters.Object) {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	group, resource := "core.kcp.io", "shards"
	switch obj.(type) {
	case *tenancyv1alpha1.Workspace:
		group, resource = "tenancy.kcp.io", "workspaces"
	case *corev1alpha1.LogicalCluster:
		resource = "logicalclusters"
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.put(pathOfObject(cluster, group, resource, obj.GetName()), &unstructured.Unstructured{Object: content})
}

// get reads an object of cluster into one, and reports whether it exists.
func (f *fakeShard) get(t *testing.T, cluster, group, resource, name string, into any) bool {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	obj, ok := f.objects[pathOfObject(cluster, group, resource, name)]
	if ok {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, into); err != nil {
			t.Fatal(err)
		}
	}
	return ok
}

func (f *fakeShard) shard(t *testing.T, cluster, name string) *corev1alpha1.Shard {
	t.Helper()
	out := &corev1alpha1.Shard{}
	if !f.get(t, cluster, "core.kcp.io", "shards", name, out) {
		t.Fatalf("there is no shard %s in %s", name, cluster)
	}
	return out
}

// put writes an object. The caller holds mu.
func (f *fakeShard) put(path string, obj *unstructured.Unstructured) *unstructured.Unstructured {
	f.revision++
	obj = obj.DeepCopy()
	obj.SetResourceVersion(strconv.Itoa(f.revision))
	if obj.GetUID() == "" {
		obj.SetUID(types.UID("uid-" + strconv.Itoa(f.revision)))
	}
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations["kcp.io/cluster"] = strings.Split(path, "/")[2]
	obj.SetAnnotations(annotations)
	f.objects[path] = obj
	if f.changed != nil {
		f.changed(obj.DeepCopy())
	}
	return obj
}

// ServeHTTP implements http.Handler.
func (f *fakeShard) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	f.mu.Lock()
	instead, before, reading, probe := f.instead, f.before, f.reading, f.probe
	f.mu.Unlock()
	if instead != nil {
		instead(w, req)
		return
	}
	if probe != nil && strings.HasSuffix(req.URL.Path, "/api") {
		probe(w, req)
		return
	}
	switch {
	case before != nil && req.Method != http.MethodGet:
		before(req)
	case reading != nil && req.Method == http.MethodGet:
		reading()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out, err := f.answer(req)
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		status := (*apierrors.StatusError)(nil)
		if !errors.As(err, &status) {
			status = apierrors.NewBadRequest(err.Error())
		}
		status.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		w.WriteHeader(int(status.ErrStatus.Code))
		out = status.ErrStatus
	}
	_ = json.NewEncoder(w).Encode(out)
}

// answer carries a request out. The caller holds mu.
func (f *fakeShard) answer(req *http.Request) (any, error) {
	// clusters, <cluster>, apis, <group>, <version>, <resource>[, <name>]
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	if len(parts) < 6 {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, req.URL.Path)
	}
	resource := schema.GroupResource{Group: parts[3], Resource: parts[5]}
	body := &unstructured.Unstructured{}
	switch req.Method {
	case http.MethodGet:
		if len(parts) == 6 {
			return f.list(req, parts)
		}
	case http.MethodPost, http.MethodPut:
		if err := json.NewDecoder(req.Body).Decode(body); err != nil {
			return nil, err
		}
	}
	path := req.URL.Path
	if req.Method == http.MethodPost {
		path += "/" + body.GetName()
	}
	existing, ok := f.objects[path]
	switch {
	case req.Method == http.MethodPost && ok:
		return nil, apierrors.NewAlreadyExists(resource, body.GetName())
	case req.Method == http.MethodPost:
		body.SetUID("")
		return f.put(path, body), nil
	case !ok:
		return nil, apierrors.NewNotFound(resource, parts[6])
	case req.Method == http.MethodPut && body.GetResourceVersion() != existing.GetResourceVersion():
		return nil, apierrors.NewConflict(resource, parts[6], errors.New("the object has been modified"))
	case req.Method == http.MethodPut:
		return f.put(path, body), nil
	case req.Method == http.MethodDelete:
		return f.remove(req, path, existing, resource)
	}
	return existing, nil
}

func (f *fakeShard) remove(req *http.Request, path string, existing *unstructured.Unstructured, resource schema.GroupResource) (any, error) {
	options := &metav1.DeleteOptions{}
	if err := json.NewDecoder(req.Body).Decode(options); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if p := options.Preconditions; p != nil && (p.UID != nil && *p.UID != existing.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != existing.GetResourceVersion()) {
		return nil, apierrors.NewConflict(resource, existing.GetName(), errors.New("the precondition does not hold"))
	}
	if len(existing.GetFinalizers()) == 0 {
		delete(f.objects, path)
		return metav1.Status{Status: metav1.StatusSuccess}, nil
	}
	going := existing.DeepCopy()
	at := metav1.Unix(1000, 0)
	going.SetDeletionTimestamp(&at)
	return f.put(path, going), nil
}

func (f *fakeShard) list(req *http.Request, parts []string) (any, error) {
	selector, err := labels.Parse(req.URL.Query().Get("labelSelector"))
	if err != nil {
		return nil, err
	}
	kinds := map[string]string{"shards": "ShardList", "workspaces": "WorkspaceList", "logicalclusters": "LogicalClusterList"}
	items := []any{}
	var paths []string
	for path := range f.objects {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range paths {
		p := strings.Split(strings.Trim(path, "/"), "/")
		obj := f.objects[path]
		if (p[1] == parts[1] || parts[1] == "*") && p[3] == parts[3] && p[5] == parts[5] && selector.Matches(labels.Set(obj.GetLabels())) {
			items = append(items, obj.Object)
		}
	}
	return map[string]any{
		"apiVersion": parts[3] + "/" + parts[4], "kind": kinds[parts[5]], "metadata": map[string]any{"resourceVersion": strconv.Itoa(f.revision)}, "items": items,
	}, nil
}

// fakes are the shards of an installation, and its administrator.
type fakes struct {
	*testing.T
	bundle    *pki.Bundle
	directory string
	// authorities are those of shards.
	authorities map[string]*x509.Certificate
	shards      map[string]*fakeShard
	admin       *Admin
}

// newFakes starts shard root, and others that are members of its installation. Each shard copies the Shard objects at
// once.
func newFakes(t *testing.T, others ...string) *fakes {
	t.Helper()
	directory := t.TempDir()
	bundle, err := pki.Ensure(directory)
	if err != nil {
		t.Fatal(err)
	}
	f := &fakes{T: t, bundle: bundle, directory: directory, authorities: map[string]*x509.Certificate{}, shards: map[string]*fakeShard{}}
	authority, err := bundle.Authority("root")
	if err != nil {
		t.Fatal(err)
	}
	root := f.start("root", authority)
	f.admin, err = New(&rest.Config{Host: root.url + "/clusters/root", TLSClientConfig: rest.TLSClientConfig{CAData: bundle.CAPEM}})
	if err != nil {
		t.Fatal(err)
	}
	root.set(t, "root", &corev1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "root"}, Spec: corev1alpha1.ShardSpec{BaseURL: root.url}})
	for _, name := range others {
		f.join(name)
	}
	root.mu.Lock()
	defer root.mu.Unlock()
	root.changed = f.copied
	for name := range f.shards {
		f.copied(root.objects[pathOfObject("root", "core.kcp.io", "shards", name)])
	}
	return f
}

// join makes a shard a member by the administrator's command, and starts it.
func (f *fakes) join(name string) {
	f.Helper()
	membership, err := f.admin.Add(f.Context(), f.bundle, Addition{Name: name, Replicas: []string{"https://127.0.0.1:1"}})
	if err != nil {
		f.Fatal(err)
	}
	authority, err := membership.Authority()
	if err != nil {
		f.Fatal(err)
	}
	if err := f.admin.Set(f.Context(), name, []string{f.start(name, authority).url}, nil); err != nil {
		f.Fatal(err)
	}
}

// copied copies a Shard object from the root shard's cluster root to all shards. The caller holds the root shard's mu.
func (f *fakes) copied(obj *unstructured.Unstructured) {
	if obj.GetAnnotations()["kcp.io/cluster"] != "root" {
		return
	}
	for name, shard := range f.shards {
		if name != "root" {
			shard.mu.Lock()
			shard.put(pathOfObject("system:shards", "core.kcp.io", "shards", obj.GetName()), obj)
			shard.mu.Unlock()
		}
	}
	f.shards["root"].put(pathOfObject("system:shards", "core.kcp.io", "shards", obj.GetName()), obj)
}

func (f *fakes) start(name string, authority *pki.Authority) *fakeShard {
	f.Helper()
	certPEM, keyPEM, err := authority.Serve(nil, []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		f.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		f.Fatal(err)
	}
	if f.authorities[name], err = x509.ParseCertificate(pair.Certificate[1]); err != nil {
		f.Fatal(err)
	}
	shard := &fakeShard{objects: map[string]*unstructured.Unstructured{}}
	server := httptest.NewUnstartedServer(shard)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	f.Cleanup(server.Close)
	shard.url = server.URL
	f.shards[name] = shard
	return shard
}
