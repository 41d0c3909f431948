// Package ranges divides work between processes that all lead: each a share of it, and each part of the work has one
// leader at a time.
//
// A range is a part of all keys, by a hash of them. It has a Lease of its own, and a term of it is what a term is in
// package election: all that holds of one lease holds of each. The process holds these leases by its presence
// (election.ByPresence), and so renews one Lease, however many ranges it leads. It watches all Leases of the namespace,
// which should have few others.
//
// # How many ranges there are
//
// That is a number of the election, which the Lease of its name has, and not of a process: whatever Config.Ranges says,
// all processes divide the keys in the same way at any time. The number changes when all processes that are present
// want the same other one, so at the end of a roll. No work goes on meanwhile: one process takes the leases of all
// ranges first, which needs the end of all their terms, and holds them while it writes the new number. With one range
// there is no number, and the Lease of the election is that of the range. So one leader becomes many by a roll, and
// many become one.
//
// Nobody else may write that Lease or delete it while processes run. What somebody writes there is the number at once,
// although terms of another number still end.
//
// The package is in no release yet, and its API may change.
package ranges

import (
	"fmt"
	"strconv"

	"github.com/regent-project/regent/pkg/election/internal/share"
)

// Range is a part of all keys.
type Range struct {
	// Index is from 0 to Of-1, and Of is how many ranges there are.
	Index, Of int
}

// Has reports whether a key belongs to the range. The result is the same in all processes and versions.
func (r Range) Has(key string) bool { return Of(key, r.Of) == r.Index }

// String returns it as people read it.
func (r Range) String() string { return fmt.Sprintf("%d of %d", r.Index, r.Of) }

// Of returns to which of n ranges a key belongs, from 0 to n-1. n is at least 1. Ranges of a higher number divide those
// of a lower one in their order: if n is twice as many, 2k and 2k+1 have what k had.
func Of(key string, n int) int { return share.Of(key, n) }

// leaseName returns the name of the Lease of a range.
func (r Range) leaseName(election string) string {
	if r.Of == 1 {
		return election
	}
	return election + "-" + strconv.Itoa(r.Index)
}
