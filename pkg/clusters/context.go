// Package clusters is about logical clusters: what they are called, how contexts and storage keys carry their names, and how
// clients and informers reach them.
package clusters

import (
	"context"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
)

// Wildcard stands for all logical clusters of the shard. It is for reading only, and is no valid cluster name.
const Wildcard logicalcluster.Name = "*"

// System clusters always exist and have no LogicalCluster object.
const (
	// SystemAdmin holds the shard's own records: its election Lease lives here.
	SystemAdmin logicalcluster.Name = "system:admin"
	// Root is the shard's first logical cluster, the parent of all workspaces.
	Root logicalcluster.Name = "root"
)

type contextKey struct{}

// With returns a context that carries the logical cluster a request is for. The server's filter puts it into each
// request; clients whose transport is a Transport are steered by it.
func With(ctx context.Context, name logicalcluster.Name) context.Context {
	return context.WithValue(ctx, contextKey{}, name)
}

// From returns the logical cluster of a request, and false if there is none.
func From(ctx context.Context) (logicalcluster.Name, bool) {
	name, ok := ctx.Value(contextKey{}).(logicalcluster.Name)
	return name, ok
}

// IsValidName reports whether name can name one logical cluster: a lower-case DNS-like label, or colon-separated ones
// that begin with "system". (logicalcluster.Name.IsValid accepts anything that starts with "system:".)
func IsValidName(name logicalcluster.Name) bool {
	return name.IsValid() && name.Path().IsValid()
}

// IsSystem reports whether a cluster always exists and has no LogicalCluster.
func IsSystem(name logicalcluster.Name) bool { return strings.HasPrefix(name.String(), "system:") }

// IsPermanent reports whether a cluster belongs to the shard itself. It is never emptied, whatever is done to its
// LogicalCluster: the shard's leader makes that one again.
func IsPermanent(name logicalcluster.Name) bool { return name == Root || IsSystem(name) }
