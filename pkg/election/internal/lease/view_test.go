package lease

import (
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	coordinationv1 "k8s.io/api/coordination/v1"
)

// Operators follow a shard's leader by these lines. Each change is logged once, whatever brings the news, and however
// often.
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
