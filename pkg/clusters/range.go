package clusters

import (
	"github.com/kcp-dev/logicalcluster/v3"

	"github.com/regent-project/regent/pkg/election/ranges"
)

// Range is a part of all logical clusters, as ranges.Range is one of all keys. The zero Range is all of them.
type Range ranges.Range

// Has reports whether a logical cluster belongs to the range.
func (r Range) Has(cluster logicalcluster.Name) bool {
	return r.Of <= 1 || RangeOf(cluster, r.Of) == r.Index
}

// RangeOf returns to which of n ranges a logical cluster belongs: by a hash of its name, but that the shard's own
// clusters all belong to range 0, with what is the shard's as a whole.
func RangeOf(cluster logicalcluster.Name, n int) int {
	if IsPermanent(cluster) {
		return 0
	}
	return ranges.Of(cluster.String(), n)
}

// slots is into how many parts objects are divided, so that a range is read without most of the others'. It is a number
// of ranges, too.
const slots = 64

// slots returns the first slot that may have objects of the range, and the one after the last. The hash is cut into
// ranges in its order, whatever their number is.
func (r Range) slots() (from, to int) {
	n := max(1, r.Of)
	return r.Index * slots / n, ((r.Index+1)*slots + n - 1) / n
}
