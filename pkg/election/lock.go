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

// lock is what one entry of RunOrDie sees of the Lease. The stock LeaseLock will not do: through it client-go goes on
// trying to renew although it has read another holder's name, takes the lease back after a foreign term came and went,
// and creates a deleted Lease anew, all within "one" term. This lock makes an entry one attempt and one term:
//
//   - Before it has acquired, it shows RunOrDie the Lease as the standby judged it, without a request, and without a holder
//     unless that is this entry, and writes once, on that very revision. If that fails, the entry is over.
//   - Afterwards it renews a heldLease, in its own epoch, whatever client-go passes. Whatever shows another term ends it, and every
//     later call fails.
//
// RunOrDie calls the methods of resourcelock.Interface, one at a time. The others may be called at any time.
type lock struct {
	*heldLease
	named    bool               // what was judged names this entry already: in mode coordinated
	asked    bool               // Get was called before it was acquired; RunOrDie alone does
	giveUp   context.CancelFunc // makes RunOrDie return after a failed attempt
	acquired chan struct{}      // closed when the term begins
	failures chan struct{}      // capacity 1: an attempt to renew has failed
	tries    renewals           // guarded by mu
}

var _ resourcelock.Interface = (*lock)(nil)

// Identity is the holder identity of this entry.
func (l *lock) Identity() string { return l.identity }

// Describe names the Lease.
func (l *lock) Describe() string { return l.api.Namespace + "/" + l.api.Name }

// RecordEvent does nothing: the elector reports its terms itself.
func (l *lock) RecordEvent(string) {}

// Get shows RunOrDie the record. It reads only in a term, where client-go asks after a renewal has failed.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	held, err := l.held()
	switch {
	case err != nil:
		return nil, nil, err
	case held != nil && l.named && !l.isStale(): // client-go asks before each renewal
		return record(held)
	case held != nil:
		return l.readAgain(ctx)
	case l.named && l.asked:
		// The first answer did not make it write, and it would ask until the end of time.
		return nil, nil, l.notAcquired(errors.New("the Lease does not let it"))
	case l.named:
		l.asked = true
		return record(l.basis.Lease)
	case l.basis.Lease == nil:
		return nil, nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), l.api.Name)
	default:
		// Without its holder: client-go, which sees it for the first time, would wait a whole lease duration.
		free := l.basis.Lease.DeepCopy()
		free.Spec.HolderIdentity = ptr.To("")
		return record(free)
	}
}

// Create acquires a lease that has no Lease. In a term it never does: that the Lease was deleted has ended it.
func (l *lock) Create(ctx context.Context, ler resourcelock.LeaderElectionRecord) error {
	switch held, err := l.held(); {
	case err != nil:
		return err
	case held != nil:
		return l.fail(because(Deposed, "the Lease was deleted"))
	}
	return l.take(ctx, ler)
}

// Update acquires the lease, or renews it.
func (l *lock) Update(ctx context.Context, ler resourcelock.LeaderElectionRecord) error {
	switch held, err := l.held(); {
	case err != nil:
		return err
	case held == nil:
		return l.take(ctx, ler)
	default:
		return l.renew(ctx, held, ler)
	}
}

// take is the one attempt.
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

// epoch is that of the term. Whoever named the holder may have raised it already; kube-apiserver does not.
func (l *lock) epoch() (int32, error) {
	if l.named && l.basis.Epoch() > l.basis.Before {
		return int32(l.basis.Epoch()), nil
	}
	return l.nextEpoch()
}

// renew does not write what is as good as new: client-go's first renewal follows right on the acquiring write, while
// the term's own first writes are on their way.
func (l *lock) renew(ctx context.Context, held *coordinationv1.Lease, ler resourcelock.LeaderElectionRecord) error {
	if time.Since(l.renewed().sent) < l.cfg.RetryPeriod/2 {
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
		if !apierrors.IsConflict(err) { // which is an answer: the Lease was edited, or a renewal that had failed was made after all
			l.falter(sent)
		}
		l.distrust()
		l.logger.V(2).Info("Could not renew the lease", "err", err)
		return fmt.Errorf("renew the lease: %w", err)
	}
	l.renewedAt(sent) // before the view tells that there is news
	l.adopt(written)
	l.logger.V(6).Info("Renewed the lease", "revision", written.ResourceVersion)
	return nil
}

// readAgain reads the Lease before it is renewed on what that shows.
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

// renewed is how the renewals go.
func (l *lock) renewed() renewals {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tries
}

// renewedAt takes in that a write has succeeded that was sent then.
func (l *lock) renewedAt(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tries = renewals{sent: sent}
}

// falter takes in that an attempt to renew has failed that was sent then: its write, or the read that client-go makes first once a
// write has failed.
func (l *lock) falter(sent time.Time) {
	l.mu.Lock()
	l.tries.failed = sent
	l.mu.Unlock()
	select {
	case l.failures <- struct{}{}:
	default:
	}
}

// notAcquired ends an attempt.
func (l *lock) notAcquired(err error) error {
	err = l.fail(fmt.Errorf("%w: %w", errNotAcquired, err))
	l.giveUp()
	return err
}

// record is a Lease as client-go wants it.
func record(held *coordinationv1.Lease) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r := resourcelock.LeaseSpecToLeaderElectionRecord(&held.Spec)
	raw, err := json.Marshal(r)
	return r, raw, err
}
