package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election/fence"
)

// lock is the resource lock that one entry of RunOrDie uses. With client-go's LeaseLock, RunOrDie goes on trying to
// renew after it has read another holder's name, takes the lease back after another term has come and gone, and creates
// a deleted Lease anew, all of it in what the caller takes for one term. With this lock an entry makes one attempt and
// leads one term:
//
//   - Before the lease is acquired, Get returns the Lease as the standby judged it. It makes no request, and hides the
//     holder, unless the holder is this entry. RunOrDie then writes once, on exactly that revision. If the write fails,
//     the entry is over.
//   - After that the lock renews a heldLease in the epoch of the term, whatever record client-go passes. When the Lease
//     shows another term, the entry is over, and every later call fails.
//
// RunOrDie calls the methods of resourcelock.Interface, one at a time. The others may be called at any time.
type lock struct {
	*heldLease
	named    bool               // in mode coordinated: the Lease already names this entry as its holder
	asked    bool               // Get was called before the lease was acquired; only RunOrDie's goroutine uses it
	giveUp   context.CancelFunc // makes RunOrDie return after a failed attempt
	acquired chan struct{}      // closed when the term begins
	failures chan struct{}      // capacity 1: an attempt to renew has failed
	latest   renewals           // guarded by mu
}

var _ resourcelock.Interface = (*lock)(nil)

// Identity returns the holder identity of this entry.
func (l *lock) Identity() string { return l.identity }

// Describe returns the name of the Lease.
func (l *lock) Describe() string { return l.api.Namespace + "/" + l.api.Name }

// RecordEvent does nothing: the Elector reports its terms itself.
func (l *lock) RecordEvent(string) {}

// Get returns the record for RunOrDie. It makes a request only during a term, when a renewal has failed.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	held, err := l.lastLease()
	switch {
	case err != nil:
		return nil, nil, err
	case held != nil && l.named && !l.isStale(): // in mode coordinated client-go calls Get before each renewal
		return record(held)
	case held != nil:
		return l.readAgain(ctx)
	case l.named && l.asked:
		// The first answer did not make RunOrDie write, and it would call Get for ever.
		return nil, nil, l.notAcquired(errors.New("client-go does not acquire the Lease in its present state"))
	case l.named:
		l.asked = true
		return record(l.basis.Lease)
	case l.basis.Lease == nil:
		return nil, nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), l.api.Name)
	default:
		// Hide the holder: client-go sees it for the first time, and would wait for a whole lease duration.
		free := l.basis.Lease.DeepCopy()
		free.Spec.HolderIdentity = ptr.To("")
		return record(free)
	}
}

// Create acquires the lease if there is no Lease. During a term it fails: the Lease was deleted, which ends the term.
func (l *lock) Create(ctx context.Context, ler resourcelock.LeaderElectionRecord) error {
	switch held, err := l.lastLease(); {
	case err != nil:
		return err
	case held != nil:
		return l.fail(because(Deposed, "the Lease was deleted"))
	}
	return l.take(ctx, ler)
}

// Update acquires or renews the lease.
func (l *lock) Update(ctx context.Context, ler resourcelock.LeaderElectionRecord) error {
	switch held, err := l.lastLease(); {
	case err != nil:
		return err
	case held == nil:
		return l.take(ctx, ler)
	default:
		return l.renew(ctx, held, ler)
	}
}

// take makes the one attempt to acquire the lease.
func (l *lock) take(ctx context.Context, ler resourcelock.LeaderElectionRecord) error {
	epoch, err := l.epoch()
	if err != nil {
		return l.notAcquired(err)
	}
	sent, err := l.acquire(ctx, resourcelock.LeaderElectionRecordToLeaseSpec(&ler), epoch)
	if err != nil {
		return l.notAcquired(err)
	}
	l.renewedAt(sent)
	close(l.acquired)
	return nil
}

// epoch returns the epoch of the term. The electing controller may have raised it when it named the holder;
// kube-apiserver does not.
func (l *lock) epoch() (int32, error) {
	if l.named && l.basis.Epoch() > l.basis.Before {
		return int32(l.basis.Epoch()), nil
	}
	return l.nextEpoch()
}

// renew writes the Lease, unless the last write is less than half a retry period old: client-go renews right after it
// has acquired.
func (l *lock) renew(ctx context.Context, held *coordinationv1.Lease, ler resourcelock.LeaderElectionRecord) error {
	if time.Since(l.renewals().sent) < l.cfg.RetryPeriod/2 {
		return nil
	}
	next := held.DeepCopy()
	next.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(&ler)
	next.Spec.LeaseTransitions = held.Spec.LeaseTransitions
	_ = l.describe(next)
	sent := time.Now()
	written, err := l.update(ctx, next)
	switch {
	case apierrors.IsNotFound(err):
		return l.fail(because(Deposed, "the Lease was deleted"))
	case fence.IsFenced(err):
		return l.fail(because(Fenced, "the renewal was refused"))
	}
	if err != nil {
		// a conflict is an answer: the Lease was edited, or an earlier renewal was committed
		if !apierrors.IsConflict(err) {
			l.falter(sent)
		}
		l.distrust()
		l.logger.V(2).Info("Could not renew the lease", "err", err)
		return fmt.Errorf("renew the lease: %w", err)
	}
	l.renewedAt(sent) // first: the view wakes the loop that assesses the renewals
	l.adopt(written)
	l.logger.V(6).Info("Renewed the lease", "revision", written.ResourceVersion)
	return nil
}

// readAgain reads the Lease, because the last renewal failed, and returns its record for the next renewal.
func (l *lock) readAgain(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	sent := time.Now()
	held, err := l.reread(ctx)
	if err != nil {
		if !errors.Is(err, Deposed) {
			l.falter(sent)
		}
		return nil, nil, err
	}
	return record(held)
}

// renewals returns how the renewals of the term have gone so far.
func (l *lock) renewals() renewals {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latest
}

// renewedAt records a successful write that was sent at that time.
func (l *lock) renewedAt(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = renewals{sent: sent}
}

// falter records a failed attempt to renew that was sent at that time. It may be a write, or the read that client-go
// makes after a failed write.
func (l *lock) falter(sent time.Time) {
	l.mu.Lock()
	l.latest.failed = sent
	l.mu.Unlock()
	select {
	case l.failures <- struct{}{}:
	default:
	}
}

// notAcquired ends an attempt that has failed.
func (l *lock) notAcquired(err error) error {
	err = l.fail(fmt.Errorf("%w: %w", errNotAcquired, err))
	l.giveUp()
	return err
}

// record returns a Lease in the form that client-go wants.
func record(held *coordinationv1.Lease) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r := resourcelock.LeaseSpecToLeaderElectionRecord(&held.Spec)
	raw, err := json.Marshal(r)
	return r, raw, err
}
