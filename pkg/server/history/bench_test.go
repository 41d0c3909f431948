package history

import "testing"

// What the record of a term costs its leader, beside the read and the write, when the history is full.
func BenchmarkWith(b *testing.B) {
	full := pages{}
	for epoch := int64(1); epoch <= Most; epoch++ {
		full.add(entry(epoch))
	}
	for b.Loop() {
		full.with(entry(Most + 1))
	}
}
