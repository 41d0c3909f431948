package controllers

import (
	"github.com/kcp-dev/logicalcluster/v3"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/election/ranges"
)

// ClustersOf returns which logical clusters belong to a range: by a hash of their names, but that the shard's own
// clusters all belong to range 0, with what is the shard's as a whole. With one range all do.
func ClustersOf(r ranges.Range) clusters.Range {
	if r.Of <= 1 {
		return nil
	}
	return func(cluster logicalcluster.Name) bool { return RangeOf(cluster, r.Of) == r.Index }
}

// RangeOf returns to which of n ranges a logical cluster belongs.
func RangeOf(cluster logicalcluster.Name, n int) int {
	if clusters.IsPermanent(cluster) {
		return 0
	}
	return ranges.Of(cluster.String(), n)
}
