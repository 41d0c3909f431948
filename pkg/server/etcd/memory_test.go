package etcd

import (
	"runtime"
	"strings"
	"testing"
)

// Large values that were overwritten take no memory any more, whoever has written them, and however many they were.
func TestWhatWasOverwrittenIsNotKeptInMemory(t *testing.T) {
	const writes, size = 400, 64 << 10
	s := start(t, t.TempDir())
	defer s.Close()
	client := client(t, s)
	defer func() { _ = client.Close() }()
	before := heap()
	for range writes {
		if _, err := client.Put(t.Context(), "k", strings.Repeat("x", size)); err != nil {
			t.Fatal(err)
		}
	}
	if grown := heap() - before; grown > writes*size/2 {
		t.Errorf("%d MiB were written, and %d MiB are kept", writes*size>>20, grown>>20)
	}
}

// heap is how many bytes are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what the first one has found may have had finalizers
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
