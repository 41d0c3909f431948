// Package ranges divides work between processes that all lead: each a share of it, and each part of the work has one
// leader at a time.
//
// A range is a part of all keys, by a hash of them. It has a Lease of its own, and a term of it is what a term is in
// package election: all that holds of one lease holds of each. The process holds these leases by its presence
// (election.ByPresence), and so renews one Lease, however many ranges it leads. It watches all Leases of the namespace,
// which should have few others.
//
// The package is in no release yet, and its API may change.
package ranges

import "github.com/regent-project/regent/pkg/election/internal/share"

// Of returns to which of n ranges a key belongs, from 0 to n-1. n is at least 1. The result is the same in all
// processes and versions.
func Of(key string, n int) int { return share.Of(key, n) }
