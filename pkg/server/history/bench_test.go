package history

import "testing"

// What the record of a term costs its leader, beside the read and the write, when the history is full.
func BenchmarkWith(b *testing.B) {
	var data map[string]string
	for epoch := int64(1); epoch <= Most; epoch++ {
		data, _ = with(data, entry(epoch))
	}
	for b.Loop() {
		with(data, entry(Most+1))
	}
}
