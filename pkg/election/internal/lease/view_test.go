package lease

import (
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"pgregory.net/rapid"
)

// Terms are judged by the view alone. So it must never show a state from before the write that began the term, in whatever order and
// however late watch, reads and answers bring the news. The history may be any, even with falling epochs.
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

// Operators follow a shard's leader by these lines. Each change is logged once, whatever brings the news, and however often.
func TestEachChangeOfTheLeaderIsLoggedOnce(t *testing.T) {
	var log []string
	logger := funcr.New(func(_, line string) { log = append(log, line) }, funcr.Options{Verbosity: 2})
	v := NewView(logger, func(identity string) bool { return identity == "me" })
	revision := 0
	for _, step := range []struct {
		what  string
		lease *coordinationv1.Lease
		want  string // in the line; empty: there is none
	}{
		{"no Lease", nil, "There is no Lease yet"},
		{"another leads", leaseOf("other", 1, 0), `"reason"="another holder" "epoch"=1 "from"="" "to"="other"`},
		{"it renews", leaseOf("other", 1, 7), ""},
		{"it releases", leaseOf("", 1, 8), `"reason"="the lease is free" "epoch"=1 "from"="other" "to"=""`},
		{"this process leads", leaseOf("me", 2, 9), ""},
		{"it releases, too", leaseOf("", 2, 10), ""},
		{"a third one leads", leaseOf("third", 3, 11), `"reason"="another holder" "epoch"=3 "from"="" "to"="third"`},
		{"the Lease is deleted", nil, `"reason"="the Lease was deleted" "epoch"=3 "from"="third" "to"=""`},
	} {
		log = nil
		revision++
		for range 2 {
			v.take(step.lease, strconv.Itoa(revision))
		}
		if step.want == "" && len(log) != 0 || step.want != "" && (len(log) != 1 || !strings.Contains(log[0], step.want)) {
			t.Errorf("%s: logged %q, want %q", step.what, log, step.want)
		}
	}
}
