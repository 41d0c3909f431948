package clusters

import "github.com/kcp-dev/logicalcluster/v3"

// Range says which logical clusters belong to a range. It must be pure and quick. Nil: all do.
type Range func(logicalcluster.Name) bool

// Has reports whether a logical cluster belongs to the range.
func (r Range) Has(cluster logicalcluster.Name) bool { return r == nil || r(cluster) }
