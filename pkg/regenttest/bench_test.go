package regenttest

import "testing"

// BenchmarkStart measures how long Start takes, and ending it. docs/REGENTTEST.md has the figures.
func BenchmarkStart(b *testing.B) {
	for _, of := range []struct {
		name string
		o    []Option
	}{
		{"a-shard", nil},
		{"a-shard-of-two-replicas", []Option{Replicas(2)}},
		{"three-shards", []Option{Shards(3)}},
		{"three-shards-of-two-replicas", []Option{Shards(3), Replicas(2)}},
	} {
		b.Run(of.name, func(b *testing.B) {
			o, err := newOptions(of.o)
			must(b, err)
			program, err := find(b.Context(), o)
			must(b, err)
			for b.Loop() {
				s, err := start(b.Context(), o, program, b.TempDir(), b.TempDir())
				must(b, err)
				b.StopTimer()
				must(b, s.stop())
				b.StartTimer()
			}
		})
	}
}
