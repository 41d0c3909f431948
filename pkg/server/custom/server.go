// Package custom serves custom resources: what the definitions of a logical cluster say, over one stored resource.
//
//	request -> Server -> Source: what does the cluster define?
//	                  -> handler of the Content: upstream's, one for all clusters that define the same
//	                     -> view: the stored objects of one kind, as one version of one schema shows them
//	                        -> one store, with one watch cache, for all custom objects of the shard
//
// A further cluster that defines what others define costs its definition, and nothing else: no goroutine, no watch, no
// cache.
//
// Upstream's handler alone cannot do this. It looks up definitions by name, without a cluster, and keeps a watch cache
// for each version of each definition, with some 14 goroutines.
package custom

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/regent-project/regent/pkg/clusters"
)

// Server serves custom resources.
type Server struct {
	stored    *Storage
	handlers  *handlers
	documents *documents
}

// NewServer returns what serves the custom objects of a storage. There is one for a storage.
func NewServer(stored *Storage, cfg HandlerConfig) *Server {
	s := &Server{stored: stored, handlers: newHandlers(cfg, stored.store), documents: newDocuments()}
	stored.Contents.forgotten = s.handlers.forget
	return s
}

// EndCalls ends all calls of conversion webhooks, and lets none begin any more. Requests that need one fail. Otherwise
// a server that stops would wait for webhooks that hang.
func (s *Server) EndCalls() { s.handlers.converters.close() }

// Wrap returns a handler that serves what the request's logical cluster defines, and has next serve everything else.
// builtIn says which API groups next serves: nobody can define these.
func (s *Server) Wrap(source Source, builtIn func(group string) bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok {
			next.ServeHTTP(w, req)
			return
		}
		answered, err := false, error(nil)
		switch {
		case !info.IsResourceRequest:
			answered, err = s.describe(w, req, source, next)
		case info.APIPrefix == "apis" && !builtIn(info.APIGroup):
			answered, err = s.serve(w, req, info, source)
		}
		if err != nil {
			fail(w, req, info, err)
		} else if !answered {
			next.ServeHTTP(w, req)
		}
	})
}

// describe answers a request for what the logical cluster serves.
func (s *Server) describe(w http.ResponseWriter, req *http.Request, source Source, next http.Handler) (bool, error) {
	cluster, ok := clusters.From(req.Context())
	if !ok || cluster == clusters.Wildcard || !strings.HasPrefix(req.URL.Path, "/apis") && !strings.HasPrefix(req.URL.Path, "/openapi/") {
		return false, nil
	}
	return s.documents.serve(w, req, source.Definitions(cluster), next)
}

// serve answers a request for custom objects, if the logical cluster defines them.
func (s *Server) serve(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, source Source) (bool, error) {
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	cluster, ok := clusters.From(req.Context())
	if !ok {
		return false, apierrors.NewInternalError(clusters.ErrNoCluster)
	}
	var d *Definition
	var err error
	if cluster == clusters.Wildcard {
		d, err = s.everywhere(source, resource)
	} else {
		d, err = source.Definition(req.Context(), cluster, resource)
	}
	if err != nil || d == nil {
		return false, err
	}
	content, err := s.serving(req.Context(), d.Content, info.APIVersion)
	if err != nil || content == nil {
		return false, err
	}
	req, content, err = s.unconverted(req, info, content)
	if err != nil {
		return false, err
	}
	if inProtobuf(req, info.Verb) {
		return false, errProtobuf
	}
	handler, err := s.handlers.of(cluster, content) //nolint:contextcheck // a handler outlives the request that is its first
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	ctx, cancel := context.WithCancel(withDefinition(withAllOf(req.Context(), d.of), d))
	defer cancel()
	if info.Verb == "watch" {
		defer d.whenChanged(cancel)() //nolint:contextcheck // it waits for other contexts' ends
	}
	handler.ServeHTTP(w, req.WithContext(ctx)) //nolint:contextcheck // it is the request's, with more in it
	return true, nil
}

// inProtobuf reports whether a request writes an object in protobuf, in which custom objects cannot be. Upstream's
// handler panics at one.
func inProtobuf(req *http.Request, verb string) bool {
	mediaType, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type"))
	return mediaType == runtime.ContentTypeProtobuf && (verb == "create" || verb == "update")
}

var errProtobuf = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
	Message: "custom objects are not written in protobuf: send application/json or application/yaml",
}}

// serving returns the content that serves a version of another one: that itself, or nil. Controllers of this process
// can use the version that is stored even if users cannot: what nobody can use any more can be deleted nevertheless.
func (s *Server) serving(ctx context.Context, c *Content, version string) (*Content, error) {
	if c.serves(version) {
		return c, nil
	}
	stored := slices.IndexFunc(c.spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage && v.Name == version })
	if stored < 0 || !s.internal(ctx) {
		return nil, nil
	}
	return s.variant(c, func(spec *apiextensionsv1.CustomResourceDefinitionSpec) { spec.Versions[stored].Served = true })
}

// internal reports whether a request is one of this process's controllers.
func (s *Server) internal(ctx context.Context) bool {
	internal := s.handlers.cfg.Internal
	return internal != nil && internal(ctx)
}

// variant returns a content that differs from another one in its spec.
func (s *Server) variant(c *Content, change func(*apiextensionsv1.CustomResourceDefinitionSpec)) (*Content, error) {
	spec := *c.spec
	spec.Versions = slices.Clone(spec.Versions)
	change(&spec)
	out, err := s.stored.Contents.Of(&spec, c.names)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return out, nil
}

// everywhere returns the definition by which the objects of all clusters can be shown together.
func (s *Server) everywhere(source Source, resource schema.GroupResource) (*Definition, error) {
	all := source.Everywhere(resource)
	switch len(all.Contents) {
	case 0:
		return nil, nil
	case 1:
		return &Definition{Content: all.Contents[0], changed: all.changed}, nil
	}
	content, err := s.together(all.Contents)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return &Definition{Content: content, changed: all.changed, of: all.Contents}, nil
}

// serves reports whether a content serves an API version.
func (c *Content) serves(version string) bool {
	for _, v := range c.spec.Versions {
		if v.Name == version {
			return v.Served
		}
	}
	return false
}

func fail(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, err error) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		err = apierrors.NewInternalError(err)
	}
	gv := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	responsewriters.ErrorNegotiated(err, apiextensionsapiserver.Codecs, gv, w, req)
}

type definitionKey struct{}

func withDefinition(ctx context.Context, d *Definition) context.Context {
	return context.WithValue(ctx, definitionKey{}, d)
}

// From returns the definition of a request for custom objects, and nil for other requests.
func From(ctx context.Context) *Definition {
	d, _ := ctx.Value(definitionKey{}).(*Definition)
	return d
}
