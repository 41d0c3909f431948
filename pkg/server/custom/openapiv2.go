package custom

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/net"
	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/regent-project/regent/pkg/clusters"
)

// maxInWhole is how large all definitions of a logical cluster may be together, in bytes, to be in its OpenAPI v2
// document. That document is one for all resources, so it is made anew when any of them changes; v3 has one for each
// API version. While it is made it takes some 20 times this memory.
const maxInWhole = 8 << 20

// smallInWhole is how large the definitions of a cluster are together, in bytes, whose document is made beside a larger
// one: in a moment.
const smallInWhole = 512 << 10

// whole is the OpenAPI v2 document of each logical cluster: all schemas in one.
type whole struct {
	cache *documentCache
	// clusters has one document made at a time for each logical cluster, so that no cluster has others wait for
	// more than one of its own. large and small have room for one document each, so that the memory they take is
	// bounded, and most clusters do not wait for the few that define very much.
	clusters     making
	large, small chan struct{}
	// form answers as the documents do, without their content: it tells in which form a client wants them.
	form http.Handler
	// builtIn is what the server itself serves, once it was asked. Nobody changes it.
	builtIn atomic.Pointer[spec.Swagger]
}

func newWhole(in *documentCache) *whole {
	return &whole{cache: in, large: make(chan struct{}, 1), small: make(chan struct{}, 1), form: handlerOf(emptyDocument())}
}

// emptyDocument returns the smallest document that can be encoded in all forms.
func emptyDocument() *spec.Swagger {
	return &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger: "2.0", Info: &spec.Info{InfoProps: spec.InfoProps{Title: "none", Version: "0"}}, Paths: &spec.Paths{},
	}}
}

// serve answers for a cluster with these definitions, and reports whether it has. If none of them fits the server
// itself answers, for what is built in. A warning says which do not fit.
func (o *whole) serve(w http.ResponseWriter, req *http.Request, all []*Definition, next http.Handler) (bool, error) {
	definitions, rest := fitting(all)
	if len(rest) > 0 {
		warnOf(w.Header(), rest)
	}
	if len(definitions) == 0 && len(all) > 0 {
		return false, nil
	}
	form := answerOf(req.Context(), o.form, req.Header.Get("Accept"))
	if form.code != http.StatusOK {
		w.WriteHeader(form.code)
		return true, nil
	}
	mediaType := form.header.Get("Content-Type")
	key := "openapi v2 " + mediaType + " " + identify(definitions)
	if there, ok := o.cache.get(req.Context(), key); ok {
		return true, there.(*packed).serve(w, req)
	}
	made, err := o.make(req, key, mediaType, definitions, next)
	if err != nil {
		return true, err
	}
	return true, made.serve(w, req)
}

// fitting returns which definitions are in a document, in their order, and which are left out: the largest.
func fitting(all []*Definition) (in, rest []*Definition) {
	if sizeOf(all) <= maxInWhole {
		return all, nil
	}
	fits, size := map[*Definition]bool{}, 0
	for _, d := range slices.SortedFunc(slices.Values(all), func(a, b *Definition) int {
		return cmp.Or(cmp.Compare(a.size, b.size), strings.Compare(a.names.Plural+"."+a.spec.Group, b.names.Plural+"."+b.spec.Group))
	}) {
		if size += d.size; size > maxInWhole {
			break
		}
		fits[d] = true
	}
	for _, d := range all {
		if fits[d] {
			in = append(in, d)
		} else {
			rest = append(rest, d)
		}
	}
	return in, rest
}

const (
	// mostNamed is how many definitions a warning names.
	mostNamed = 10
	// warningCode is that of warnings which last (RFC 7234, section 5.5.7).
	warningCode = 299
)

// warnOf says which definitions are left out, as kubectl shows it.
func warnOf(header http.Header, rest []*Definition) {
	var names []string
	for _, d := range rest[:min(len(rest), mostNamed)] {
		names = append(names, d.names.Plural+"."+d.spec.Group)
	}
	text := fmt.Sprintf("OpenAPI v2 leaves out %d custom resources, the largest, because all would have more than %d MiB: use v3. They are %s", len(rest), maxInWhole>>20, strings.Join(names, ", "))
	if len(rest) > mostNamed {
		text += ", and others"
	}
	if warning, err := net.NewWarningHeader(warningCode, "-", text); err == nil {
		header.Add("Warning", warning)
	}
}

// make makes a document, unless somebody else has meanwhile.
func (o *whole) make(req *http.Request, key, mediaType string, definitions []*Definition, next http.Handler) (*packed, error) {
	end, err := o.turn(req.Context(), sizeOf(definitions))
	if err != nil {
		return nil, err
	}
	defer end()
	if there, ok := o.cache.get(req.Context(), key); ok {
		return there.(*packed), nil
	}
	builtIn := o.builtIn.Load()
	if builtIn == nil {
		builtIn = &spec.Swagger{}
		if err := ask(req, next, "application/json", builtIn); err != nil {
			return nil, err
		}
		o.builtIn.Store(builtIn)
	}
	merged, err := merge(klog.FromContext(req.Context()), builtIn, definitions)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("put the schemas of custom resources together for OpenAPI v2: %w", err))
	}
	document, err := pack(answerOf(req.Context(), handlerOf(merged), mediaType))
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("encode the schemas of custom resources for OpenAPI v2: %w", err))
	}
	o.cache.add(req.Context(), key, document, len(document.body))
	return document, nil
}

// turn returns when a document of definitions of a size may be made, and a function to call when it is made.
func (o *whole) turn(ctx context.Context, size int) (end func(), err error) {
	cluster, _ := clusters.From(ctx)
	leave, err := o.clusters.lock(ctx, cluster.String())
	if err != nil {
		return nil, othersAreMade()
	}
	place := o.large
	if size <= smallInWhole {
		place = o.small
	}
	select {
	case place <- struct{}{}:
		return func() { <-place; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, othersAreMade()
	}
}

func othersAreMade() error {
	return apierrors.NewTimeoutError("other OpenAPI v2 documents are being made: try again, or use v3", 1)
}

// merge returns what is built in with what the definitions add.
func merge(logger klog.Logger, builtIn *spec.Swagger, definitions []*Definition) (*spec.Swagger, error) {
	parts := make([]*spec.Swagger, 0, len(definitions))
	for _, of := range definitions {
		for _, s := range of.served() {
			one, err := builder.BuildOpenAPIV2(of.definition(), s.gv.Version, builder.Options{V2: true, IncludeSelectableFields: true})
			if err != nil { // the others can be told nevertheless
				logger.Error(err, "A custom resource is left out of OpenAPI v2", "resource", of.names.Plural, "groupVersion", s.gv)
				continue
			}
			one.Definitions = handler.PruneDefaults(one.Definitions) // what is built in has none either
			parts = append(parts, one)
		}
	}
	return builder.MergeSpecs(builtIn, parts...)
}

// handlerOf returns upstream's handler of a document.
func handlerOf(doc *spec.Swagger) http.Handler {
	only := &onlyHandler{}
	handler.NewOpenAPIService(doc).RegisterOpenAPIVersionedService("/openapi/v2", only)
	return only
}

// onlyHandler is a mux with one path.
type onlyHandler struct{ http.Handler }

// Handle implements common.PathHandler.
func (o *onlyHandler) Handle(_ string, h http.Handler) { o.Handler = h }

// answerOf returns the whole answer of a handler.
func answerOf(ctx context.Context, h http.Handler, accept string) *recording {
	answer := &recording{header: http.Header{}, code: http.StatusOK}
	req := (&http.Request{Method: http.MethodGet, Header: http.Header{"Accept": {accept}}}).WithContext(ctx)
	h.ServeHTTP(answer, req)
	return answer
}
