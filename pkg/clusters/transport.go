package clusters

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/kcp-dev/logicalcluster/v3"
)

// ErrNoCluster is the error of a client's call whose context has no logical cluster.
var ErrNoCluster = errors.New("the request's context names no logical cluster: call with clusters.With(ctx, name)")

// Transport returns a RoundTripper that sends each request to the logical cluster in its context (see With). So one
// clientset, with one set of connections, serves all clusters. A request without a cluster fails with ErrNoCluster.
func Transport(next http.RoundTripper) http.RoundTripper { return &transport{next: next} }

type transport struct{ next http.RoundTripper }

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	name, ok := From(req.Context())
	if !ok {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, fmt.Errorf("%s %s: %w", req.Method, req.URL.Path, ErrNoCluster)
	}
	req = req.Clone(req.Context())
	req.URL.Path = RequestPath(name) + req.URL.Path
	req.URL.RawPath = ""
	return t.next.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the transport beneath and close its idle connections.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// RequestPath returns the prefix of the URL paths of a logical cluster.
func RequestPath(name logicalcluster.Name) string { return "/clusters/" + name.String() }
