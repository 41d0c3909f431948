package lease

import (
	"strconv"
	"testing"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"pgregory.net/rapid"
)

// Terms are judged by the view alone. So it must never show a state from before the write that began the term, in
// whatever order and however late watch, reads and answers bring the news. The history may be any, even with falling
// epochs.
func TestAViewNeverGoesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "writes")
		history := make([]*coordinationv1.Lease, n) // nil: a deletion
		for i := range history {
			if rapid.IntRange(0, 5).Draw(t, "kind") > 0 {
				history[i] = leaseOf(rapid.SampledFrom([]string{"", "h", "g"}).Draw(t, "holder"), rapid.Int32Range(0, 9).Draw(t, "epoch"), 0)
				history[i].ResourceVersion = strconv.Itoa(i + 1)
			}
		}
		v := NewView(logr.Discard(), func(string) bool { return false })
		latest := 0
		for _, at := range rapid.SliceOfN(rapid.IntRange(1, n), 1, 40).Draw(t, "news, by revision") {
			v.take(history[at-1], strconv.Itoa(at))
			latest = max(latest, at)
			if seen, _ := v.Latest(); seen.Revision != strconv.Itoa(latest) || seen.Lease != history[latest-1] {
				t.Fatalf("shows revision %s after revision %d", seen.Revision, latest)
			}
		}
	})
}
