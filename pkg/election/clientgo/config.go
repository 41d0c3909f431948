package clientgo

import (
	"context"
	"errors"
	"fmt"
	"maps"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/regent-project/regent/pkg/election"
)

// leaseLock returns the lock of a configuration, or everything that is wrong with that configuration, by the names of
// its fields. What is wrong with the timings election.New finds.
func leaseLock(lec leaderelection.LeaderElectionConfig) (*resourcelock.LeaseLock, error) {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("clientgo: LeaderElectionConfig."+format, args...))
	}
	if lec.Callbacks.OnStartedLeading == nil {
		fault("Callbacks.OnStartedLeading is nil: it is what a leader does")
	}
	if lec.Callbacks.OnStoppedLeading == nil {
		fault("Callbacks.OnStoppedLeading is nil: give a function, which need not do anything")
	}
	if !lec.ReleaseOnCancel {
		fault("ReleaseOnCancel is false: set it. The lease is released when OnStartedLeading has returned, which client-go does not wait for")
	}
	if lec.WatchDog != nil {
		fault("WatchDog cannot be honoured, because it knows client-go's elector only: use clientgo.NewLeaderHealthzAdaptor, and its SetLeaderElection")
	}
	if lec.Coordinated {
		fault("Coordinated cannot be honoured without versions: set election.Config.Mode to election.Coordinated, which makes the LeaseCandidate, too")
	}
	lock, ok := lec.Lock.(*resourcelock.LeaseLock)
	switch {
	case lec.Lock == nil || ok && lock == nil:
		fault("Lock is nil: give a *resourcelock.LeaseLock")
	case !ok:
		fault("Lock is a %T: only a *resourcelock.LeaseLock can be honoured, because terms need a compare-and-swap on the Lease", lec.Lock)
	case lock.Client == nil:
		fault("Lock.Client is nil: give a client for Leases")
	case lock.LockConfig.Identity == "":
		fault("Lock.LockConfig.Identity is empty: give a name that no other process has")
	}
	return lock, errors.Join(faults...)
}

// electionConfig returns what corresponds to a valid configuration.
func electionConfig(lec leaderelection.LeaderElectionConfig, lock *resourcelock.LeaseLock) election.Config {
	cfg := election.DefaultConfig()
	cfg.Namespace, cfg.Name = lock.LeaseMeta.Namespace, lock.LeaseMeta.Name
	cfg.LeaseDuration, cfg.RenewDeadline, cfg.RetryPeriod = lec.LeaseDuration, lec.RenewDeadline, lec.RetryPeriod
	cfg.Replica = lock.LockConfig.Identity
	cfg.Client = lock.Client.Leases(cfg.Namespace)
	if len(lock.Labels) > 0 {
		cfg.Client = &labelled{cfg.Client, lock.Labels}
	}
	return cfg
}

// labelled writes the labels of a LeaseLock with each write.
type labelled struct {
	election.LeaseClient
	labels map[string]string
}

// Create creates a Lease with the labels.
func (l *labelled) Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.LeaseClient.Create(ctx, l.on(lease), opts)
}

// Update updates a Lease, and its labels.
func (l *labelled) Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.LeaseClient.Update(ctx, l.on(lease), opts)
}

func (l *labelled) on(lease *coordinationv1.Lease) *coordinationv1.Lease {
	lease = lease.DeepCopy()
	if lease.Labels == nil {
		lease.Labels = map[string]string{}
	}
	maps.Copy(lease.Labels, l.labels)
	return lease
}

var _ election.LeaseClient = (*labelled)(nil)
