package election_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// rewound is a client of a server whose etcd was at higher revisions before it was restored from a backup: ahead is by
// how much.
type rewound struct {
	election.LeaseClient
	ahead *atomic.Int64
	// bumped, if not nil, is the revision up to which the restored store has what it had: later revisions are higher by
	// bump, as etcdutl --bump-revision makes them.
	bumped *atomic.Int64
}

const bump = 1_000_000_000

// after returns a revision as a store shows it that was bumped, if it was.
func (r *rewound) after(revision string) string {
	n, err := strconv.ParseInt(revision, 10, 64)
	if r.bumped == nil || r.bumped.Load() == 0 || err != nil || n <= r.bumped.Load() {
		return r.shift(revision, r.ahead.Load())
	}
	return strconv.FormatInt(n+bump, 10)
}

// before returns the revision of the store that a client means.
func (r *rewound) before(revision string) string {
	if n, err := strconv.ParseInt(revision, 10, 64); err == nil && n > bump {
		return strconv.FormatInt(n-bump, 10)
	}
	return r.shift(revision, -r.ahead.Load())
}

func (r *rewound) out(l *coordinationv1.Lease) *coordinationv1.Lease {
	if l == nil {
		return nil
	}
	l = l.DeepCopy()
	l.ResourceVersion = r.after(l.ResourceVersion)
	return l
}

func (r *rewound) shift(revision string, by int64) string {
	n, err := strconv.ParseInt(revision, 10, 64)
	if err != nil {
		return revision
	}
	return strconv.FormatInt(n+by, 10)
}

func (r *rewound) List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	list, err := r.LeaseClient.List(ctx, opts)
	if err != nil {
		return nil, err
	}
	list = list.DeepCopy()
	if list.ResourceVersion = r.after(list.ResourceVersion); r.bumped != nil && r.bumped.Load() > 0 {
		list.ResourceVersion = strconv.FormatInt(bump+1_000_000, 10) // a restored store begins there
	}
	for i := range list.Items {
		list.Items[i] = *r.out(&list.Items[i])
	}
	return list, nil
}

func (r *rewound) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if opts.ResourceVersion = r.before(opts.ResourceVersion); r.bumped != nil && r.bumped.Load() > 0 {
		opts.ResourceVersion = strconv.FormatInt(r.bumped.Load(), 10) // all since the restore, some of it again
	}
	w, err := r.LeaseClient.Watch(ctx, opts)
	if err != nil {
		return nil, err
	}
	return watch.Filter(w, func(in watch.Event) (watch.Event, bool) {
		if l, ok := in.Object.(*coordinationv1.Lease); ok {
			in.Object = r.out(l)
		}
		return in, true
	}), nil
}

func (r *rewound) Create(ctx context.Context, l *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	written, err := r.LeaseClient.Create(ctx, l, opts)
	return r.out(written), err
}

func (r *rewound) Update(ctx context.Context, l *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	l = l.DeepCopy()
	l.ResourceVersion = r.before(l.ResourceVersion)
	written, err := r.LeaseClient.Update(ctx, l, opts)
	return r.out(written), err
}

// Get is for client-go's elector.
func (r *rewound) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	list, err := r.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), name)
	}
	return &list.Items[0], nil
}

type rewoundGetter struct{ r *rewound }

type rewoundLeases struct {
	coordinationv1client.LeaseInterface
	r *rewound
}

func (g rewoundGetter) Leases(string) coordinationv1client.LeaseInterface {
	return rewoundLeases{r: g.r}
}

func (l rewoundLeases) Get(ctx context.Context, n string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	return l.r.Get(ctx, n, o)
}
func (l rewoundLeases) Create(ctx context.Context, n *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.r.Create(ctx, n, o)
}
func (l rewoundLeases) Update(ctx context.Context, n *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.r.Update(ctx, n, o)
}

// A cluster's etcd is restored from a backup of the day before, and the programs that elect by its Leases are not
// restarted. The leader is stopped in an orderly way after that. Somebody should lead: client-go's elector does.
func TestAStandbyLeadsAfterARestoreOfEtcd(t *testing.T) {
	t.Run("ours", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := electiontest.NewStore(leaseName)
			ahead := &atomic.Int64{}
			ahead.Store(1_000_000)
			through := func(cfg *election.Config) { cfg.Client = &rewound{LeaseClient: cfg.Client, ahead: ahead} }
			leader := start(t, store, nil, through)
			leader.mustLead()
			standby := start(t, store, nil, through)
			time.Sleep(time.Minute)

			ahead.Store(0) // restored: revisions are lower
			leader.client.DropWatches()
			standby.client.DropWatches()
			time.Sleep(time.Minute)
			_, leads := leader.leading()
			t.Logf("a minute after the restore the leader leads on: %v", leads)
			leader.stop()
			if holder := store.Holder(); holder != "" {
				t.Logf("the lease is held by %q", holder)
			}
			failed := standby.client.Count(electiontest.Update)
			time.Sleep(time.Hour)
			if _, leads := standby.leading(); !leads {
				t.Errorf("an hour later the healthy standby does not lead: the lease is free (holder %q), and it has tried %d writes in vain; status: %+v",
					store.Holder(), standby.client.Count(electiontest.Update)-failed, standby.elector.Status())
			}
			standby.stop()
		})
	})
	t.Run("ours, by the book", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := electiontest.NewStore(leaseName)
			ahead, bumped := &atomic.Int64{}, &atomic.Int64{}
			ahead.Store(1_000_000)
			through := func(cfg *election.Config) { cfg.Client = &rewound{cfg.Client, ahead, bumped} }
			leader := start(t, store, nil, through)
			leader.mustLead()
			standby := start(t, store, nil, through)
			time.Sleep(time.Minute)
			latest, err := strconv.ParseInt(store.Lease().ResourceVersion, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			cutOff(leader) // it does not live to see it
			ahead.Store(0)
			bumped.Store(latest)
			standby.client.DropWatches()
			time.Sleep(2 * lease)
			standby.mustLead()
			leader.client.Always(electiontest.Fault{})
			leader.stop()
			standby.stop()
		})
	})
	t.Run("ours, alone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := electiontest.NewStore(leaseName)
			ahead := &atomic.Int64{}
			ahead.Store(1_000_000)
			only := start(t, store, nil, func(cfg *election.Config) { cfg.Client = &rewound{LeaseClient: cfg.Client, ahead: ahead} })
			only.mustLead()
			time.Sleep(time.Minute)
			ahead.Store(0)
			only.client.DropWatches()
			time.Sleep(time.Minute)
			if _, err := only.elector.StepDown("test", ""); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			if _, leads := only.leading(); !leads {
				t.Errorf("the only replica was asked to step down an hour ago, and does not lead again: status %+v", only.elector.Status())
			}
			only.stop()
		})
	})
	t.Run("client-go", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := electiontest.NewStore(leaseName)
			ahead := &atomic.Int64{}
			ahead.Store(1_000_000)
			run := func(name string) (*leaderelection.LeaderElector, func()) {
				le, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
					Lock: &resourcelock.LeaseLock{
						LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: leaseName}, Client: rewoundGetter{&rewound{LeaseClient: store.Client(), ahead: ahead}},
						LockConfig: resourcelock.ResourceLockConfig{Identity: name},
					},
					LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry, ReleaseOnCancel: true,
					Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				over := make(chan struct{})
				go func() { defer close(over); le.Run(ctx) }()
				return le, func() { cancel(); <-over }
			}
			_, stopLeader := run("a")
			time.Sleep(time.Second)
			standby, stopStandby := run("b")
			time.Sleep(time.Minute)
			ahead.Store(0)
			time.Sleep(time.Minute)
			stopLeader()
			time.Sleep(time.Minute)
			if !standby.IsLeader() {
				t.Error("client-go's standby does not lead either")
			}
			stopStandby()
		})
	})
}
