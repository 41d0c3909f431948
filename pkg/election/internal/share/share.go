// Package share decides to which range a key belongs, and who should lead which range. Its functions are pure, and
// their results are the same in all processes and versions.
package share

import (
	"cmp"
	"hash/fnv"
	"maps"
	"math/bits"
	"slices"
	"strconv"
)

// Of returns to which of n ranges a key belongs, from 0 to n-1. n is at least 1. Each range is a part of the hashes
// without a gap, in their order. So what is kept in one number of parts can be read in another without reading all.
func Of(key string, n int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	part, _ := bits.Mul64(mixed(h.Sum64()), uint64(n))
	return int(part)
}

// Assign says who should lead each range. holders are who leads them now, in order; empty: nobody does. replicas are
// those that can lead, with their weights, which are at least 1. The result has a replica for each range, and depends
// on the arguments alone; it is nil without replicas.
//
// Each replica gets its share: the ranges times its weight by all weights, rounded up or down. Whoever leads no more
// than its share keeps it, and whoever leads more gives away as few as possible. Which ranges go where is decided by
// rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998), so what a
// replica leaves is spread over all others.
func Assign(holders []string, replicas map[string]int) []string {
	if len(replicas) == 0 {
		return nil
	}
	room := shares(holders, replicas)
	assigned := make([]string, len(holders))
	for _, k := range mostWanted(holders) {
		if holder := holders[k]; room[holder] > 0 {
			room[holder]--
			assigned[k] = holder
		}
	}
	for k := range assigned {
		if assigned[k] != "" {
			continue
		}
		var best string
		for replica, left := range room {
			if left > 0 && (best == "" || prefers(k, replica, best)) {
				best = replica
			}
		}
		room[best]--
		assigned[k] = best
	}
	return assigned
}

// shares returns how many ranges each replica should lead. They add up to the number of ranges. What is left when all
// are rounded down goes to those who lead more than that already, and then to those who were rounded down most.
func shares(holders []string, replicas map[string]int) map[string]int {
	total, held, share, rest := 0, map[string]int{}, map[string]int{}, map[string]int{}
	for _, weight := range replicas {
		total += weight
	}
	for _, holder := range holders {
		held[holder]++
	}
	left := len(holders)
	for replica, weight := range replicas {
		share[replica], rest[replica] = len(holders)*weight/total, len(holders)*weight%total
		left -= share[replica]
	}
	more := func(replica string) int {
		if held[replica] > share[replica] {
			return 1
		}
		return 0
	}
	order := slices.SortedFunc(maps.Keys(replicas), func(a, b string) int {
		return cmp.Or(cmp.Compare(min(rest[b], 1), min(rest[a], 1)), cmp.Compare(more(b), more(a)), cmp.Compare(rest[b], rest[a]), cmp.Compare(a, b))
	})
	for _, replica := range order[:left] {
		share[replica]++
	}
	return share
}

// mostWanted returns the ranges in the order in which their holders want to keep them.
func mostWanted(holders []string) []int {
	order, scores := make([]int, len(holders)), make([]uint64, len(holders))
	for k, holder := range holders {
		order[k], scores[k] = k, score(k, holder)
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(-cmp.Compare(scores[a], scores[b]), cmp.Compare(a, b))
	})
	return order
}

// prefers reports whether range k goes to replica a sooner than to b.
func prefers(k int, a, b string) bool {
	return cmp.Or(cmp.Compare(score(k, a), score(k, b)), cmp.Compare(a, b)) > 0
}

// score says how much a replica wants a range. It is the same in all processes and versions.
func score(k int, replica string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strconv.Itoa(k) + "/" + replica))
	return mixed(h.Sum64())
}

// mixed spreads the bits of a hash (the finalizer of SplitMix64): the last bytes that FNV takes change its low bits
// only.
func mixed(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
