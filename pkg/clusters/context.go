// Package clusters deals with logical clusters: their names, how contexts and storage keys carry these, and how clients
// and informers reach the clusters.
package clusters

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
)

// Wildcard stands for all logical clusters of the shard. It is for reading only. It is not a valid cluster name.
const Wildcard logicalcluster.Name = "*"

// The logical clusters that belong to the shard itself.
const (
	// SystemAdmin holds the shard's own records, such as its election Lease. Like all system clusters it has no
	// LogicalCluster.
	SystemAdmin logicalcluster.Name = "system:admin"
	// Root is the shard's first logical cluster, the ancestor of all workspaces. It has a LogicalCluster.
	Root logicalcluster.Name = "root"
)

type contextKey struct{}

// With returns a context that carries the logical cluster of a request. In the server, routing.Filter adds it. In a
// client whose transport is a Transport, it says where the request goes.
func With(ctx context.Context, name logicalcluster.Name) context.Context {
	return context.WithValue(ctx, contextKey{}, name)
}

// WithOnly returns a context that ends with ctx, and carries nothing but a logical cluster: what is asked with it is
// asked for the server itself, and is not part of the request's trace, audit or identity.
func WithOnly(ctx context.Context, name logicalcluster.Name) context.Context {
	return With(onlyEnd{ctx}, name)
}

type onlyEnd struct{ context.Context }

func (onlyEnd) Value(any) any { return nil }

// From returns the logical cluster in a context, and false if there is none.
func From(ctx context.Context) (logicalcluster.Name, bool) {
	name, ok := ctx.Value(contextKey{}).(logicalcluster.Name)
	return name, ok
}

// IsValidName reports whether name is a valid name of one logical cluster: a lower-case DNS-like label, or labels
// separated by colons of which the first is "system". (logicalcluster.Name.IsValid accepts anything that begins with
// "system:".)
func IsValidName(name logicalcluster.Name) bool {
	return isLabel(name.String()) || IsSystem(name) && name.Path().IsValid()
}

// isLabel reports whether a name without colons is valid, as upstream's regular expression has it. A replica asks for
// each object of its lists, and of its keys.
func isLabel(name string) bool {
	if len(name) < 2 || len(name) > 63 || name[0] == '-' || name[len(name)-1] == '-' {
		return false
	}
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// IsSystem reports whether a cluster always exists and has no LogicalCluster.
func IsSystem(name logicalcluster.Name) bool { return strings.HasPrefix(name.String(), "system:") }

// IsPermanent reports whether a cluster belongs to the shard itself. Such a cluster is never emptied. If its
// LogicalCluster is deleted, the leader creates it again.
func IsPermanent(name logicalcluster.Name) bool { return name == Root || IsSystem(name) }

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
