package clusters

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/kcp-dev/logicalcluster/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Resolver finds the logical cluster that a path leads to.
type Resolver interface {
	// Resolve returns the name of the logical cluster at path, which is valid and not the wildcard. An error of
	// k8s.io/apimachinery/pkg/api/errors (NotFound, ServiceUnavailable) is passed on to the client as it is. Before it
	// reads from storage it asks mayRead, and returns its error if there is one.
	Resolve(ctx context.Context, path logicalcluster.Path, mayRead func() error) (logicalcluster.Name, error)
}

// Filter is the outermost handler: it takes `/clusters/<path>` off a request's URL and puts the logical cluster into
// its context (see From). What is behind it sees a URL as every Kubernetes API server does.
type Filter struct {
	// Resolver is asked for every request but those of InProcess.
	Resolver Resolver
	// InProcess recognises the requests of this server's own controllers. They name clusters exactly, also ones that
	// do not exist yet: it is they who make them.
	InProcess func(*http.Request) bool
	// Authenticated reports whether it is known who makes a request, which it must not change. It is asked when only
	// storage can tell where a path leads: strangers get a 401 then, as they would in a cluster that exists, for they
	// must not be able to make storage busy.
	Authenticated func(*http.Request) bool
	// RequestInfo parses the URL within a cluster.
	RequestInfo apirequest.RequestInfoResolver
	// Serializer encodes errors.
	Serializer runtime.NegotiatedSerializer
}

// Wrap returns a handler that steers requests to next. A request that names no cluster reaches it only for the
// endpoints of the process, such as /readyz; these also answer below any /clusters/<path>, to which it then does not
// matter where it leads.
func (f *Filter) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if ofTheProcess(req.URL.Path) && isClean(req.URL.Path) {
			next.ServeHTTP(w, req)
			return
		}
		stripped, err := f.strip(req) //nolint:contextcheck // the request carries its context
		if err != nil {
			if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
				w.Header().Set("Retry-After", strconv.Itoa(seconds))
			}
			responsewriters.ErrorNegotiated(err, f.Serializer, schema.GroupVersion{Version: "v1"}, w, req)
			return
		}
		next.ServeHTTP(w, stripped)
	})
}

// strip returns the request within its logical cluster.
func (f *Filter) strip(req *http.Request) (*http.Request, error) {
	path, rest, err := splitPath(req.URL)
	if errors.Is(err, errNoCluster) {
		return nil, newNotFound(err.Error())
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	within := within(req, rest)
	if ofTheProcess(rest) {
		return within, nil
	}
	if path.String() == Wildcard.String() {
		if err := f.checkWildcard(within); err != nil {
			return nil, err
		}
		return within.WithContext(With(within.Context(), Wildcard)), nil
	}
	name, err := f.resolve(req, path)
	if err != nil {
		return nil, err
	}
	return within.WithContext(With(within.Context(), name)), nil
}

func (f *Filter) resolve(req *http.Request, path logicalcluster.Path) (logicalcluster.Name, error) {
	if name := logicalcluster.Name(path.String()); f.InProcess(req) && IsValidName(name) {
		return name, nil
	}
	return f.Resolver.Resolve(req.Context(), path, func() error {
		if !f.Authenticated(req) {
			return apierrors.NewUnauthorized("Unauthorized")
		}
		return nil
	})
}

// checkWildcard admits what reads across clusters and cannot be mistaken for one object of one cluster: lists and
// watches over all namespaces, and discovery.
func (f *Filter) checkWildcard(req *http.Request) error {
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
	if info.Verb != "list" && info.Verb != "watch" || info.Namespace != "" || info.Name != "" || info.Subresource != "" {
		return apierrors.NewBadRequest("/clusters/* is for lists and watches over all clusters and namespaces: name one logical cluster to read a namespace or an object")
	}
	return nil
}

// within returns a copy of req whose URL path is rest, and nothing else is.
func within(req *http.Request, rest string) *http.Request {
	out := req.WithContext(req.Context())
	url := *req.URL
	url.Path, url.RawPath = rest, ""
	out.URL = &url
	out.RequestURI = url.RequestURI()
	return out
}

// newNotFound is a 404 with a message of its own; upstream's constructors would say that a resource was not found.
func newNotFound(message string) error {
	err := apierrors.NewNotFound(schema.GroupResource{Resource: "clusters"}, "")
	err.ErrStatus.Message = message
	return err
}
