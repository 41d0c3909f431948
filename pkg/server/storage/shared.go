package storage

import (
	"hash/maphash"
	"maps"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is larger is not shared: the tables below would keep it after its objects were deleted. So they keep some 30 MiB
// at the most, and a few hundred kilobytes if all is alive.
const (
	maxSharedString = 64
	maxSharedMap    = 256 // bytes of all keys and values
	maxSharedFields = 2048
)

// The parts that objects share, of all resources. A small cluster has a place or two in maps, others are for all
// clusters.
var (
	sharedStrings = make(table[string], 1<<13)
	sharedMaps    = make(table[map[string]string], 1<<16)
	sharedFields  = make(table[*metav1.FieldsV1], 1<<12)
	seed          = maphash.MakeSeed()
)

// table has one value for each remainder of hashes: the last one that was new. It needs no clearing, and whoever looks
// for a value that another one has displaced has its own copy. All methods may be called at any time on any goroutine.
type table[T any] []atomic.Pointer[T]

// get returns a value that is the same as v, or v from now on.
func (t table[T]) get(hash uint64, v T, same func(a, b T) bool) T {
	at := &t[hash%uint64(len(t))]
	if there := at.Load(); there != nil && same(*there, v) {
		return *there
	}
	copied := v // on the heap, unlike v
	at.Store(&copied)
	return v
}

func shareString(s string) string {
	if s == "" || len(s) > maxSharedString {
		return s
	}
	return sharedStrings.get(maphash.String(seed, s), s, func(a, b string) bool { return a == b })
}

// shareMap returns a map that is equal to m, and that others have.
func shareMap[M ~map[string]string](m M) M {
	size, hash := 0, uint64(0)
	for key, value := range m {
		size += len(key) + len(value)
		if size > maxSharedMap {
			return m
		}
		// The sum does not depend on the order. The second factor is for values that are swapped.
		hash += maphash.String(seed, key) * (2*maphash.String(seed, value) + 1)
	}
	if size == 0 {
		return m
	}
	return sharedMaps.get(hash, m, maps.Equal[map[string]string, map[string]string])
}

func shareFields(f *metav1.FieldsV1) *metav1.FieldsV1 {
	if f == nil {
		return nil
	}
	raw := f.GetRawBytes()
	if len(raw) > maxSharedFields {
		return f
	}
	return sharedFields.get(maphash.Bytes(seed, raw), f, func(a, b *metav1.FieldsV1) bool { return a.Equal(*b) })
}
