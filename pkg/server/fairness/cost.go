package fairness

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// A list takes one more place for each so many bytes and objects, as in upstream's priority and fairness. Most requests
// wait for etcd half of their time, but a large list keeps a CPU busy for milliseconds, and its answer in memory.
const (
	bytesPerPlace   = 100_000
	objectsPerPlace = 100
)

// Places returns how many places a request takes. stored returns how much a list of a resource has to read, before its
// limit. It is called for lists only, and for watches that begin with one.
//
// A list with selectors counts as one without, and whatever its limit is: it reads as much. One of a namespace counts
// as one of all namespaces, because nothing is known of single ones: whoever has much there can list with a limit.
func Places(info *request.RequestInfo, query url.Values, stored func() (objects, bytes int64)) int {
	switch {
	case info == nil || !info.IsResourceRequest || info.Name != "" || info.Subresource != "":
		return 1
	case info.Verb == "watch" && !beginsWithList(query):
		return 1
	case info.Verb != "list" && info.Verb != "watch" && info.Verb != "deletecollection":
		return 1
	}
	objects, bytes := stored()
	if query.Get("labelSelector") != "" || query.Get("fieldSelector") != "" {
		query = nil
	}
	if limit, err := strconv.ParseInt(query.Get("limit"), 10, 64); err == nil && limit > 0 && limit < objects {
		bytes = bytes / objects * limit
		objects = limit
	}
	return int(1 + min(bytes/bytesPerPlace+objects/objectsPerPlace, 1<<20))
}

// beginsWithList reports whether a watch sends what there is before it sends what changes.
func beginsWithList(query url.Values) bool {
	version := query.Get("resourceVersion")
	return query.Get("sendInitialEvents") == "true" || version == "" || version == "0"
}

type queryKey struct{}

// WithQuery returns a handler that lets QueryFrom find the request's query.
func WithQuery(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.RawQuery != "" {
			req = req.WithContext(context.WithValue(req.Context(), queryKey{}, req.URL))
		}
		next.ServeHTTP(w, req)
	})
}

// QueryFrom returns the query of the request in ctx.
func QueryFrom(ctx context.Context) url.Values {
	if of, ok := ctx.Value(queryKey{}).(*url.URL); ok {
		return of.Query()
	}
	return nil
}
