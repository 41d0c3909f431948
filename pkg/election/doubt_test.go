package election_test

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// A write that failed may have been committed. If no watch shows that, a read does.
func TestAFailedWriteIsLookedForWithoutAWatch(t *testing.T) {
	losing := func(cfg *election.Config) {
		client := cfg.Client.(*electiontest.Client)
		client.HoldWatches(true)
		client.Next(electiontest.Create, electiontest.Fault{LoseReply: true})
	}
	t.Run("soon, by who leads on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := electiontest.NewStore(leaseName)
			r := start(t, store, nil, losing)
			time.Sleep(renew/3 + moment)
			if leads := r.mustLead(); leads.Epoch() != 2 {
				t.Errorf("leads in epoch %d, want 2: the first was acquired without its knowing", leads.Epoch())
			}
			r.client.HoldWatches(false)
			r.stop()
		})
	})
	t.Run("before its process ends", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := electiontest.NewStore(leaseName)
			r := start(t, store, nil, losing, func(cfg *election.Config) {
				// The read that follows the failure fails, too, so only the read at the end remains.
				cfg.Client.(*electiontest.Client).Next(electiontest.List, electiontest.Fault{}, electiontest.Fault{Err: errRefused})
			})
			time.Sleep(renew/3 + moment)
			if store.Holder() == "" {
				t.Fatal("the write whose answer was lost is not there")
			}
			r.stop()
			if holder := store.Holder(); holder != "" {
				t.Errorf("%q holds the lease, and leads nothing", holder)
			}
			r.client.HoldWatches(false)
		})
	})
}

// While the lease may name an ended process, the file of that process stays: it proves to others that nobody works
// under the lease. In all other cases the file is removed, so that files do not pile up.
func TestAFileStaysWhileTheLeaseMayNameItsProcess(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*replica)
		stays   bool
	}{
		"an orderly end":                  {prepare: func(r *replica) { r.mustLead() }},
		"a doubt that is over":            {prepare: func(r *replica) { time.Sleep(renew / 3); r.mustLead() }},
		"a release that does not arrive":  {prepare: func(r *replica) { time.Sleep(renew / 3); r.mustLead(); cutOff(r) }, stays: true},
		"a doubt that cannot be resolved": {prepare: func(r *replica) { cutOff(r); time.Sleep(renew / 3) }, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				directory := t.TempDir()
				r := start(t, electiontest.NewStore(leaseName), nil, func(cfg *election.Config) {
					cfg.ReplicasDirectory = directory
					if name != "an orderly end" {
						cfg.Client.(*electiontest.Client).Next(electiontest.Create, electiontest.Fault{LoseReply: true})
					}
				})
				synctest.Wait()
				test.prepare(r)
				r.stop()
				if files, err := os.ReadDir(directory); err != nil || (len(files) > 0) != test.stays {
					t.Errorf("%d files are left, %v", len(files), err)
				}
			})
		})
	}
}

// An object that is created after its process has stopped looking would stay for ever.
func TestAProcessThatEndsWaitsForWhatItCreates(t *testing.T) {
	for mode, left := range map[election.Mode]func(*electiontest.Store) []string{
		election.ForLife{}:     (*electiontest.Store).Others,
		election.Coordinated{}: func(s *electiontest.Store) []string { return s.Candidates().Names() },
	} {
		t.Run(string(mode.Name()), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := electiontest.NewStore(leaseName)
				r := start(t, store, nil, inMode(mode), func(cfg *election.Config) {
					cfg.Client.(*electiontest.Client).Next(electiontest.Create, electiontest.Fault{Delay: time.Second})
				})
				time.Sleep(time.Second / 2)
				r.stop()
				r.client.Wait()
				if names := left(store); len(names) != 0 {
					t.Errorf("left behind: %q", names)
				}
			})
		})
	}
}

// lingering is a client whose lists of all Leases hang until they are cancelled, and a while longer. Lists of the
// election's Lease work.
type lingering struct {
	*electiontest.Client
	underWay atomic.Int32
}

func (l *lingering) List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	if strings.HasSuffix(opts.FieldSelector, "="+leaseName) {
		return l.Client.List(ctx, opts)
	}
	l.underWay.Add(1)
	defer l.underWay.Add(-1)
	<-ctx.Done()
	time.Sleep(time.Second)
	return nil, context.Cause(ctx)
}

// A program that stops its server after Run has returned relies on this: the Elector makes no request any more.
func TestRunReturnsOnlyWhenWhatItWatchesHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		leader := start(t, store, nil, forLife)
		leader.mustLead()
		client := &lingering{Client: store.Client()}
		// in another mode: it has no such object itself
		standby := start(t, store, nil, func(cfg *election.Config) { cfg.Client = client })
		time.Sleep(time.Second)
		if client.underWay.Load() == 0 {
			t.Fatal("it does not watch what stands for the leader's life")
		}
		standby.stop()
		if n := client.underWay.Load(); n != 0 {
			t.Errorf("%d calls are under way", n)
		}
		leader.stop()
	})
}

// deaf is a client whose first watch of the Lease sends nothing and does not end.
type deaf struct {
	*electiontest.Client
	first election.LeaseClient // for the first watch; nil after it
}

func (d *deaf) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if first := d.first; first != nil {
		d.first = nil
		return first.Watch(ctx, opts)
	}
	return d.Client.Watch(ctx, opts)
}

// Once a read has found what the watch should have shown, the watch is replaced.
func TestAWatchThatMissedAChangeIsBegunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		held := store.Client()
		held.HoldWatches(true)
		r := startUnelected(t, store, func(cfg *election.Config) { // it writes nothing that could fail
			cfg.Client = &deaf{cfg.Client.(*electiontest.Client), held}
		})
		r.mustLead()
		store.Take("foreign", time.Hour)
		time.Sleep(time.Minute)
		r.mustEnd(0, election.Deposed)
		time.Sleep(time.Second)
		store.Free()
		freed := time.Now()
		if leads := r.mustLead(); !leads.began.Equal(freed) {
			t.Errorf("leads %v after the lease was freed: the next read told, not the watch", leads.began.Sub(freed))
		}
		r.stop()
		held.HoldWatches(false)
	})
}
