package upgrade

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/regent-project/regent/test/e2e/harness"
	"github.com/regent-project/regent/test/e2e/history"
)

// shared is the Lease of the programs, and the ConfigMap that they count in.
const shared = "root/default/shared"

// counts are the terms that count, in the order in which they began to, and the revisions between which they did. That
// of a term which comes back is another one.
func counts(events []history.Event) (spans []history.Span) {
	for _, e := range events {
		if e.Term == "" || !strings.HasSuffix(e.Key, "/configmaps/"+shared) {
			continue
		}
		if n := len(spans); n == 0 || spans[n-1].Term != e.Term {
			spans = append(spans, history.Span{Term: e.Term, From: e.Revision})
		}
		spans[len(spans)-1].To = e.Revision
	}
	return spans
}

// I15: programs with pkg/election of both versions share a Lease, at a server of either version. Each hands over to the
// other when it is asked to stop, and is followed by it when it is killed. All that is counted is counted in its term.
func TestLibrariesOfBothVersionsShareALeaseI15(t *testing.T) {
	for name, server := range map[string]string{"a server of the release before": older(), "a server of this version": newer()} {
		t.Run(name, func(t *testing.T) {
			etcd := harness.StartEtcd(t)
			recorder := history.Record(t, etcd.Client(t), "/registry")
			shard := harness.NewShard(etcd.URL)
			shard.Binary, shard.Timings = server, harness.Default
			replica := shard.Start(t, "a")
			replica.WaitRoot()
			var of []string // what each process is of
			start := func(program string) *harness.Process {
				of = append(of, program)
				return harness.Start(t, fmt.Sprintf("leader-%d", len(of)), "env", "POD_IP=127.0.0.1", harness.Binary(program), "--kubeconfig="+filepath.Join(replica.Root, "admin.kubeconfig"),
					"--cluster=root", "--name=shared", "--secret=shared-probe", "--every=20ms", "--fenced")
			}
			awaitTerm := func(n int) {
				t.Helper()
				harness.Eventually(t, fmt.Sprintf("term %d counts", n), func() bool { return len(counts(recorder.Events())) >= n })
			}
			leads := start("before/leader")
			awaitTerm(1)
			for n, next := range []struct {
				program string
				signal  syscall.Signal
			}{
				{"leader", syscall.SIGTERM}, {"before/leader", syscall.SIGTERM}, {"leader", syscall.SIGKILL}, {"before/leader", syscall.SIGKILL},
			} {
				standby := start(next.program)
				harness.Eventually(t, "the standby hears the leader", func() bool { return len(standby.Lines("In contact with the leader's process")) > 0 })
				leads.Signal(next.signal)
				if code := leads.Wait(); next.signal == syscall.SIGTERM && code != 0 {
					t.Errorf("a leader that was asked to stop ended with %d", code)
				}
				awaitTerm(n + 2)
				if expired := standby.Lines(`"Leading"`, "expired"); len(expired) > 0 {
					t.Errorf("%s waited until the lease had expired: %q", next.program, expired)
				}
				leads = standby
			}
			leads.Signal(syscall.SIGTERM)
			if code := leads.Wait(); code != 0 {
				t.Errorf("the last leader ended with %d", code)
			}
			events := recorder.Finish(t)
			terms, counted := history.Terms(events, shared), counts(events)
			if len(terms) != len(of) || len(counted) != len(of) || len(history.Twice(slices.Concat(terms, counted))) > 0 {
				t.Fatalf("%d processes, one after the other; the Lease shows the terms %v, and what is counted %v", len(of), terms, counted)
			}
			for n, term := range terms {
				if c := counted[n]; c.From <= term.From || term.To != 0 && c.To >= term.To {
					t.Errorf("%s counted from revision %d to %d, and led from %d to %d", of[n], c.From, c.To, term.From, term.To)
				}
			}
		})
	}
}
