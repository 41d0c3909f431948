package election_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// What the log says of work that does not stop is true of the lease, and of what this process does next.
func TestTheLogSaysWhatLateWorkMeans(t *testing.T) {
	const waits = "Shutdown waits for work that has not stopped: "
	for name, test := range map[string]struct {
		end          func(*electiontest.Store, *replica)
		want, others string
		then         string
	}{
		"it steps down": {
			func(_ *electiontest.Store, r *replica) { _, _ = r.elector.StepDown("test", "") },
			"Quarantined: ", "The lease expires unreleased", "this replica campaigns again",
		},
		"another holds the lease": {
			func(store *electiontest.Store, _ *replica) { store.Take("stranger", time.Hour) },
			"Quarantined: ", "Another replica holds the lease", "this replica campaigns again",
		},
		"the Lease is deleted": {
			func(store *electiontest.Store, _ *replica) { store.Delete() },
			"Quarantined: ", "Nobody holds the lease", "this replica campaigns again",
		},
		"the process stops": {
			func(_ *electiontest.Store, r *replica) { r.cancel(errDone) },
			waits, "The lease expires unreleased", "this replica goes on with its shutdown",
		},
		"the process stops while it drains": {
			func(_ *electiontest.Store, r *replica) {
				_, _ = r.elector.StepDown("test", "")
				time.Sleep(drain / 2)
				r.cancel(errDone)
			},
			waits, "The lease expires unreleased", "this replica goes on with its shutdown",
		},
		"the process stops when it is quarantined": {
			func(store *electiontest.Store, r *replica) {
				store.Take("stranger", time.Hour)
				time.Sleep(2 * drain)
				r.cancel(errDone)
			},
			waits, "Another replica holds the lease", "this replica goes on with its shutdown",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, wake := electiontest.NewStore(leaseName), make(chan struct{})
				r := startLogged(t, store, func(ctx context.Context, _ election.Term) error {
					<-ctx.Done()
					<-wake
					return nil
				})
				r.mustLead()
				test.end(store, r)
				time.Sleep(drain + moment)
				if lines := r.log.with(test.want); len(lines) != 1 || !strings.Contains(lines[0], test.others) {
					t.Errorf("when the work is late: %q", r.log.with(""))
				}
				if lines := r.log.with(waits); (len(lines) > 0) != (test.want == waits) {
					t.Errorf("it says of the shutdown: %q", lines)
				}
				close(wake)
				synctest.Wait()
				if lines := r.log.with("The late work has stopped: " + test.then); len(lines) != 1 {
					t.Errorf("when the work has stopped: %q", r.log.with(""))
				}
				r.stop()
			})
		})
	}
}
