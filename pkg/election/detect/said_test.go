package detect

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election"
)

// A standby that has to wait for the lease to expire does not promise more. No holder is named: the leader's statement
// may be of an earlier term.
func TestAContactIsToldWithWhatItIsGoodFor(t *testing.T) {
	leader := open(t, "leader", "127.0.0.1:0")
	leader.Say(election.Statement{Holder: "of an earlier term", Condition: election.Over})
	for name, waits := range map[string]bool{"it acts on a crash": false, "it waits for the lease to expire": true} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var log strings.Builder
			ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), funcr.New(func(_, line string) {
				mu.Lock()
				defer mu.Unlock()
				log.WriteString(line + "\n")
			}, funcr.Options{})))
			said := func() string {
				mu.Lock()
				defer mu.Unlock()
				return log.String()
			}
			f := newDetector(t, "standby", "127.0.0.1:0")
			f.secret = shardSecret
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				f.Follow(ctx, leader.Contact(), election.Follower{Waits: waits, Report: func(election.News) {}, Writes: func(context.Context, string) bool { return false }})
			}()
			waitFor(t, "contact", func() bool {
				return strings.Contains(said(), "In contact with the leader's process: a crash of it will be noticed at once")
			})
			cancel()
			<-ended
			if got := strings.Contains(said(), "its lease has to expire all the same"); got != waits {
				t.Errorf("it says %s", said())
			}
			if strings.Contains(said(), "earlier term") {
				t.Errorf("it names the holder of an earlier term: %s", said())
			}
		})
	}
}
