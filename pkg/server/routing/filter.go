// Package routing finds the logical cluster that a request is for, and decides which requests are allowed in the
// cluster's state.
package routing

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/kcp-dev/logicalcluster/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/regent-project/regent/pkg/clusters"
)

// Annotations of audit events.
const (
	// AuditPath is the path to a logical cluster as the URL names it. It is also on events of requests that were
	// not authenticated.
	AuditPath = "regent.dev/path"
	// AuditCluster is the name of the logical cluster that the path leads to. It is also on events of requests that
	// were not authorized, if the replica's caches know the cluster.
	AuditCluster = "kcp.io/cluster"
)

// Filter takes /clusters/<path> off a request's URL and puts the logical cluster into its context (see clusters.From).
// The handlers behind it see a URL as in any Kubernetes API server. Filter has three places in the chain of handlers:
//
//	Parse       outermost. It only reads the URL: it looks nothing up and answers nobody.
//	Authorizer  behind authentication, audit and the limits on requests. It looks up the cluster, so that
//	            authorization and audit know it.
//	Admit       behind authorization. It answers requests whose URL is wrong or whose cluster does not exist.
//	            Users without rights do not get here, so they do not learn which clusters exist.
type Filter struct {
	// Resolver looks up clusters, except for requests of this process.
	Resolver Resolver
	// InProcess recognises requests of this server's own controllers. They name clusters exactly, also clusters
	// that do not exist yet, because the controllers create them.
	InProcess func(*http.Request) bool
	// IsHere returns an error for a cluster that is on another shard by now. Nil: none is.
	IsHere func(logicalcluster.Name) error
	// RequestInfo parses the URL inside a cluster.
	RequestInfo apirequest.RequestInfoResolver
	// CountedAs returns the name under which limits count the request in ctx, whose user is who.
	CountedAs func(ctx context.Context, who user.Info) string
	// Serializer encodes errors.
	Serializer runtime.NegotiatedSerializer
}

// Parse returns a handler that splits a request's URL and passes every request on to next. A faulty URL stays as it is,
// and Admit answers it. The endpoints of the process, such as /readyz, belong to no cluster. They also answer below any
// /clusters/<path>, whether that cluster exists or not.
func (f *Filter) Parse(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if ofTheProcess(req.URL.Path) && isClean(req.URL.Path) {
			next.ServeHTTP(w, req)
			return
		}
		path, rest, err := splitPath(req.URL)
		if err != nil {
			next.ServeHTTP(w, req.WithContext(withDestination(req.Context(), &destination{fault: urlFault(err)}))) //nolint:contextcheck // the request carries its context
			return
		}
		inner := within(req, rest)
		if ofTheProcess(rest) {
			next.ServeHTTP(w, inner)
			return
		}
		ctx := audit.WithAuditContext(inner.Context())
		audit.AddAuditAnnotation(ctx, AuditPath, path.String())                                //nolint:contextcheck // the request carries its context
		next.ServeHTTP(w, inner.WithContext(withDestination(ctx, f.destination(inner, path)))) //nolint:contextcheck // the request carries its context
	})
}

// destination returns what the URL alone says about a request's cluster.
func (f *Filter) destination(req *http.Request, path logicalcluster.Path) *destination {
	d := &destination{path: path}
	name := logicalcluster.Name(path.String())
	switch {
	case name == clusters.Wildcard:
		if d.fault = f.wildcardFault(req); d.fault == nil {
			d.name = clusters.Wildcard
		}
	case f.InProcess(req) && clusters.IsValidName(name):
		d.name = name
	}
	return d
}

// Admit returns a handler that puts a request's logical cluster into its context and passes the request on to next. If
// there is no such cluster, Admit answers with an error. A request without a cluster reaches next only for the
// endpoints of the process.
func (f *Filter) Admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		d, ok := destinationFrom(req.Context())
		if !ok {
			next.ServeHTTP(w, req)
			return
		}
		name, err := d.resolve(req.Context(), f.Resolver, nil)
		if err == nil && f.IsHere != nil && !f.InProcess(req) {
			err = f.IsHere(name)
		}
		if err != nil {
			f.refuse(w, req, err)
			return
		}
		next.ServeHTTP(w, req.WithContext(clusters.With(req.Context(), name)))
	})
}

func (f *Filter) refuse(w http.ResponseWriter, req *http.Request, err error) {
	Explain(w.Header(), req.URL.Path, err)
	responsewriters.ErrorNegotiated(err, f.Serializer, schema.GroupVersion{Version: "v1"}, w, req)
}

// wildcardFault returns nil for requests that may read across clusters: discovery, and lists and watches over all
// namespaces, also with a field selector for a name. All other requests could be mistaken for requests about one object
// of one cluster.
func (f *Filter) wildcardFault(req *http.Request) error {
	if req.Method != http.MethodGet {
		return apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "clusters"}, req.Method+" on /clusters/*, which is for reading only")
	}
	info, err := f.RequestInfo.NewRequestInfo(req)
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("cannot parse the URL: %v", err))
	}
	if !info.IsResourceRequest {
		return nil
	}
	// Not info.Name: a field selector sets it, too.
	if info.Verb != "list" && info.Verb != "watch" || info.Namespace != "" || len(info.Parts) != 1 {
		return apierrors.NewBadRequest("/clusters/* is for lists and watches over all clusters and namespaces: name one logical cluster to read a namespace or an object")
	}
	return nil
}

// within returns a copy of req with another URL path.
func within(req *http.Request, rest string) *http.Request {
	out := req.WithContext(req.Context())
	url := *req.URL
	url.Path, url.RawPath = rest, ""
	out.URL = &url
	out.RequestURI = url.RequestURI()
	return out
}

// urlFault returns the answer to a URL that splitPath refuses.
func urlFault(err error) error {
	if errors.Is(err, errNoCluster) {
		return NewNotFound(err.Error())
	}
	return apierrors.NewBadRequest(err.Error())
}

// NewNotFound returns a 404 with a message of its own. Upstream's constructors would say that a resource was not found.
func NewNotFound(message string) error {
	err := apierrors.NewNotFound(schema.GroupResource{Resource: "clusters"}, "")
	err.ErrStatus.Message = message
	return err
}
