package custom

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery"
)

// documents tell clients what a logical cluster serves: discovery and OpenAPI. They are made when somebody asks, and
// are the same for all clusters that define the same.
type documents struct {
	whole  *whole
	cache  *documentCache
	making making

	mu      sync.Mutex
	builtIn *builtInDocuments
}

// builtInDocuments is what the server itself serves, which does not change.
type builtInDocuments struct {
	groups     []metav1.APIGroup
	aggregated []apidiscoveryv2.APIGroupDiscovery
	id         string // of both
}

func newDocuments() *documents {
	d := &documents{cache: newDocumentCache()}
	d.whole = newWhole(d.cache)
	return d
}

// serve answers requests for documents that definitions have a part in, and reports whether it has.
func (d *documents) serve(w http.ResponseWriter, req *http.Request, definitions []*Definition, next http.Handler) (bool, error) {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	if req.Method != http.MethodGet && req.Method != http.MethodHead || len(definitions) == 0 {
		return false, nil
	}
	switch {
	case len(parts) == 1 && parts[0] == "apis":
		all, err := d.all(req, definitions, next)
		if err == nil {
			all.ServeHTTP(w, req)
		}
		return true, err
	case len(parts) == 2 && parts[0] == "apis":
		for _, g := range groupsOf(ofGroup(definitions, parts[1])) {
			discovery.NewAPIGroupHandler(apiextensionsapiserver.Codecs, g.entry()).ServeHTTP(w, req)
			return true, nil
		}
	case len(parts) == 3 && parts[0] == "apis":
		if list := resourcesOf(definitions, schema.GroupVersion{Group: parts[1], Version: parts[2]}); len(list) > 0 {
			gv := schema.GroupVersion{Group: parts[1], Version: parts[2]}
			discovery.NewAPIVersionHandler(apiextensionsapiserver.Codecs, gv, discovery.APIResourceListerFunc(func() []metav1.APIResource { return list })).ServeHTTP(w, req)
			return true, nil
		}
	case len(parts) == 2 && parts[0] == "openapi" && parts[1] == "v2":
		return d.whole.serve(w, req, definitions, next)
	case len(parts) == 2 && parts[0] == "openapi" && parts[1] == "v3":
		return true, d.index(w, req, definitions, next)
	case len(parts) == 5 && parts[0] == "openapi" && parts[1] == "v3" && parts[2] == "apis":
		return d.schemas(w, req, definitions, schema.GroupVersion{Group: parts[3], Version: parts[4]})
	}
	return false, nil
}

// ofGroup returns the definitions of a group. They are ordered by group.
func ofGroup(definitions []*Definition, name string) []*Definition {
	from, _ := slices.BinarySearchFunc(definitions, name, func(d *Definition, name string) int { return cmp.Compare(d.spec.Group, name) })
	to := from
	for to < len(definitions) && definitions[to].spec.Group == name {
		to++
	}
	return definitions[from:to]
}

func resourcesOf(definitions []*Definition, gv schema.GroupVersion) (list []metav1.APIResource) {
	for _, d := range ofGroup(definitions, gv.Group) {
		for _, s := range d.served() {
			if s.gv == gv {
				list = append(list, s.resources()...)
			}
		}
	}
	return list
}

// all returns the handler of /apis, which has what is built in and what the definitions add.
func (d *documents) all(req *http.Request, definitions []*Definition, next http.Handler) (http.Handler, error) {
	id := identify(definitions)
	if there, ok := d.cache.get(req.Context(), "discovery "+id); ok {
		return there.(http.Handler), nil
	}
	builtIn, err := d.own(req, next)
	if err != nil {
		return nil, err
	}
	// As in Kubernetes, what is built in comes first.
	made := &groupsDocument{
		list: &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: slices.Clone(builtIn.groups)},
		all:  &apidiscoveryv2.APIGroupDiscoveryList{Items: slices.Clone(builtIn.aggregated)},
		etag: id + builtIn.id[:16],
	}
	for _, g := range groupsOf(definitions) {
		made.list.Groups = append(made.list.Groups, g.entry())
		made.all.Items = append(made.all.Items, g.aggregated())
	}
	d.cache.add(req.Context(), "discovery "+id, made, len(definitions)*listedBytes)
	return made, nil
}

// own asks the server itself what it serves, once.
func (d *documents) own(req *http.Request, next http.Handler) (*builtInDocuments, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.builtIn != nil {
		return d.builtIn, nil
	}
	list, all := &metav1.APIGroupList{}, &apidiscoveryv2.APIGroupDiscoveryList{}
	if err := ask(req, next, "application/json", list); err != nil {
		return nil, err
	}
	if err := ask(req, next, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", all); err != nil {
		return nil, err
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("what is built in cannot be told: %w", err))
	}
	d.builtIn = &builtInDocuments{groups: list.Groups, aggregated: all.Items, id: fmt.Sprintf("%x", sha256.Sum256(text))}
	return d.builtIn, nil
}

// ask has next answer the request, and decodes the answer.
func ask(req *http.Request, next http.Handler, accept string, into any) error {
	inner := req.Clone(req.Context())
	inner.Method, inner.Header = http.MethodGet, http.Header{"Accept": {accept}}
	answer := &recording{header: http.Header{}, code: http.StatusOK}
	next.ServeHTTP(answer, inner)
	if answer.code != http.StatusOK {
		return apierrors.NewInternalError(fmt.Errorf("what is built in cannot be told: %s answers %d", req.URL.Path, answer.code))
	}
	if err := json.Unmarshal(answer.body, into); err != nil {
		return apierrors.NewInternalError(fmt.Errorf("what is built in cannot be told: %w", err))
	}
	return nil
}

// recorded is an answer that is kept in memory.
type recording struct {
	header http.Header
	code   int
	body   []byte
}

// Header implements http.ResponseWriter.
func (r *recording) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *recording) WriteHeader(code int) { r.code = code }

// Write implements http.ResponseWriter.
func (r *recording) Write(p []byte) (int, error) {
	r.body = append(r.body, p...)
	return len(p), nil
}

// identify returns a string that is the same for definitions that say the same.
func identify(definitions []*Definition) string {
	h := sha256.New()
	for _, d := range definitions {
		_, _ = h.Write(append(d.hash[:], fmt.Sprint(d.Terminating)...)) // a hash never fails
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:16])
}
