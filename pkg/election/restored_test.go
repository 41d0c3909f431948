package election_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// restores are the ways in which an etcd is restored, by how much higher its revisions are after it.
var restores = map[string]int64{"revisions are lower": 0, "by the book": 1_000_000_000}

// A cluster's etcd is restored from a backup, and the programs that elect by its Leases are not restarted. Somebody
// leads, whatever has happened since the backup, and whoever goes then: client-go's elector does, too.
func TestSomebodyLeadsAfterARestoreOfEtcd(t *testing.T) {
	for _, mode := range []election.Mode{election.Renewed{}, election.Coordinated{}} {
		for how, bump := range restores {
			for name, scene := range map[string]func(*restored){
				"the leader of the backup leads on, and stops": func(r *restored) {
					r.restore(bump)
					time.Sleep(lease)
					r.leader.stop()
					r.mustSoonLead(r.standby)
				},
				"the leader of the backup dies with it": func(r *restored) {
					r.leader.client.Always(electiontest.Fault{Hang: true})
					r.restore(bump)
					r.mustSoonLead(r.standby)
					r.leader.client.Always(electiontest.Fault{})
				},
				"another has led since": func(r *restored) {
					if _, err := r.leader.elector.StepDown("the other", ""); err != nil {
						r.t.Fatal(err)
					}
					time.Sleep(lease)
					r.restore(bump)
					r.mustSoonLead(r.leader, r.standby)
				},
				"another has led since, and dies with it": func(r *restored) {
					r.leader.stop()
					time.Sleep(lease)
					r.leader.run(nil)
					time.Sleep(lease)
					r.standby.client.Always(electiontest.Fault{Hang: true})
					r.restore(bump)
					r.mustSoonLead(r.leader)
					r.standby.client.Always(electiontest.Fault{})
				},
			} {
				t.Run(fmt.Sprintf("%s/%s/%s", mode.Name(), how, name), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						r := &restored{t: t, store: electiontest.NewStore(leaseName)}
						named := func(name string) func(*election.Config) {
							return func(cfg *election.Config) { cfg.Mode, cfg.Replica = mode, name }
						}
						r.leader = start(t, r.store, nil, named("leader"))
						time.Sleep(soonLed)
						r.standby = start(t, r.store, nil, named("standby"))
						time.Sleep(time.Minute)
						r.backup = time.Now()
						time.Sleep(time.Minute)
						scene(r)
						r.end()
					})
				})
			}
		}
	}
}

// soonLed is longer than an electing controller takes to name somebody.
const soonLed = 10 * time.Second

// restored is a scene: a leader and a standby, whose store has a backup.
type restored struct {
	t               *testing.T
	store           *electiontest.Store
	leader, standby *replica
	backup          time.Time
}

func (r *restored) restore(bump int64) { r.store.Restore(r.backup, bump) }

// mustSoonLead waits until one of the replicas leads, and still leads a while later: a standby reads the Lease once a
// minute, and then the lease has to expire. As long as none leads its work may be of the time before.
func (r *restored) mustSoonLead(replicas ...*replica) {
	r.t.Helper()
	led := 0
	for range 2*60 + 2*int(lease/time.Second) {
		time.Sleep(time.Second)
		var leading *replica
		for _, one := range replicas {
			if _, leads := one.leading(); leads && one.elector.Status().State == "leading" && one.elector.Status().Epoch > 0 {
				leading = one
			}
		}
		if led++; leading == nil {
			led = 0
		}
		if led > int(lease/time.Second) {
			return
		}
	}
	for _, one := range replicas {
		r.t.Errorf("nobody leads for long; the store shows %+v, the replica's status is %+v", r.store.Lease(), one.elector.Status())
	}
}

// end stops who has not been stopped.
func (r *restored) end() {
	for _, one := range []*replica{r.leader, r.standby} {
		if one.elector.Status().State != "stopped" {
			one.stop()
		}
		one.client.Wait()
	}
}

// The only replica is asked to step down after a restore.
func TestWhoIsAloneLeadsAgainAfterARestoreOfEtcd(t *testing.T) {
	for how, bump := range restores {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := electiontest.NewStore(leaseName)
				only := start(t, store, nil)
				defer only.stop()
				only.mustLead()
				time.Sleep(time.Minute)
				backup := time.Now()
				time.Sleep(time.Minute)
				store.Restore(backup, bump)
				time.Sleep(time.Minute)
				if _, err := only.elector.StepDown("test", ""); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute + lease)
				if _, leads := only.leading(); !leads {
					t.Errorf("it does not lead again: %+v", only.elector.Status())
				}
			})
		})
	}
}

// getter is a client of client-go's elector.
type getter struct{ client *electiontest.Client }

func (g getter) Leases(string) coordinationv1client.LeaseInterface {
	return leases{client: g.client}
}

// leases has the methods that client-go's elector calls.
type leases struct {
	coordinationv1client.LeaseInterface
	client *electiontest.Client
}

func (l leases) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	list, err := l.client.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), name)
	}
	return &list.Items[0], nil
}

func (l leases) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.client.Create(ctx, lease, o)
}

func (l leases) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.client.Update(ctx, lease, o)
}

// What client-go's elector does, for comparison: it reads the Lease each time.
func TestClientGoLeadsAfterARestoreOfEtcd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore(leaseName)
		run := func(name string) (*leaderelection.LeaderElector, func()) {
			elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
				Lock: &resourcelock.LeaseLock{
					LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: leaseName}, Client: getter{store.Client()},
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
			go func() { defer close(over); elector.Run(ctx) }()
			return elector, func() { cancel(); <-over }
		}
		_, stopLeader := run("a")
		time.Sleep(time.Second)
		standby, stopStandby := run("b")
		time.Sleep(time.Minute)
		backup := time.Now()
		time.Sleep(time.Minute)
		store.Restore(backup, 0)
		time.Sleep(time.Minute)
		stopLeader()
		time.Sleep(time.Minute)
		if !standby.IsLeader() {
			t.Error("client-go's standby does not lead")
		}
		stopStandby()
	})
}
