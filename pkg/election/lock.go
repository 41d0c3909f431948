package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// lock is what one entry of RunOrDie sees of the Lease. The stock LeaseLock will not do: through it client-go goes on
// trying to renew although it has read another holder's name, takes the lease back after a foreign term came and went,
// and creates a deleted Lease anew, all within "one" term. This lock makes an entry one attempt and one term:
//
//   - Before it has acquired, it shows RunOrDie the Lease as the standby judged it, without a request, and without a holder
//     unless that is this entry, and writes once, on that very revision. If that fails, the entry is over.
//   - Afterwards it is pinned to the uid, holder and epoch it wrote. It writes only on the revision of its own last
//     write, or of a read that shows the same three; always its own epoch, whatever client-go passes. Whatever shows
//     another ends the term, and every later call fails.
//
// RunOrDie calls the methods of resourcelock.Interface, one at a time; release comes after it has returned. The others
// may be called at any time.
type lock struct {
	api      lease.API
	cluster  logicalcluster.Name // for fencing tokens
	identity string
	basis    lease.Observation                 // what the standby judged
	presence lease.Presence                    // to be written when acquiring
	takeover Takeover                          // how that comes about
	fresh    time.Duration                     // how long a lease needs no renewal
	owner    *metav1.OwnerReference            // the Lease's in this term, for life; nil otherwise
	standbys func() (highest int32, none bool) // see Config.standbys
	follows  func(holder string) bool          // see Config.follows
	asked    bool                              // Get was called before it was acquired; RunOrDie alone does
	named    bool                              // the basis names this entry already: in mode coordinated
	view     *lease.View
	logger   klog.Logger
	giveUp   context.CancelFunc // makes RunOrDie return after a failed attempt

	acquired chan struct{} // closed when the term begins
	over     chan struct{} // closed when the attempt has failed, or the term cannot go on
	faltered chan struct{} // capacity 1: an attempt to renew has failed

	mu    sync.Mutex
	lease *coordinationv1.Lease // our last write, or a later read of the same term; nil until acquired
	stale bool                  // lease may not be what the store has: it is read before the next write
	pin   lease.Pin             // valid once acquired
	tries renewals
	cause error // set before over is closed
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
		if held, err = l.reread(ctx); err != nil {
			return nil, nil, err
		}
		return record(held)
	case l.named && l.asked:
		// The first answer did not make it write, and it would ask until the end of time.
		return nil, nil, l.fail(errors.New("the Lease does not let it"))
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
		return l.end(because(Deposed, "the Lease was deleted"))
	}
	return l.acquire(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: l.api.Name}}, ler, l.api.Create)
}

// Update acquires the lease, or renews it.
func (l *lock) Update(ctx context.Context, ler resourcelock.LeaderElectionRecord) error {
	held, err := l.held()
	if err != nil {
		return err
	}
	switch {
	case held == nil:
		return l.acquire(ctx, l.basis.Lease, ler, l.api.Update)
	case l.forLife():
		return l.stillHold(ctx)
	default:
		return l.renew(ctx, held, ler)
	}
}

// acquire is the one attempt. Whether it succeeded is known from the answer only: a write whose answer is lost may have
// been committed, and the standby that then sees our identity clears it.
func (l *lock) acquire(ctx context.Context, from *coordinationv1.Lease, ler resourcelock.LeaderElectionRecord, write writeFunc) error {
	epoch, err := l.epoch()
	if err != nil {
		return l.fail(err)
	}
	taken := from.DeepCopy()
	taken.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(&ler)
	taken.Spec.LeaseTransitions = ptr.To(epoch)
	lease.Strip(taken)
	if l.forLife() {
		taken.Spec.RenewTime, taken.Spec.LeaseDurationSeconds = nil, nil
		taken.OwnerReferences = append(slices.Clone(taken.OwnerReferences), *l.owner)
	}
	l.presence.WriteTo(taken)
	sent := time.Now()
	written, err := write(ctx, taken)
	if err != nil {
		return l.fail(fmt.Errorf("acquire the lease: %w", err))
	}

	l.mu.Lock()
	l.lease, l.tries.sent = written, sent
	l.takeover.Sent, l.takeover.Acquired = sent, time.Now()
	l.pin = lease.Pin{UID: written.UID, Holder: l.identity, Epoch: int64(epoch)}
	l.mu.Unlock()
	l.view.See(written) // before anybody judges this term by the view
	close(l.acquired)
	return nil
}

// epoch is that of the term. Whoever named the holder may have raised it already; kube-apiserver does not.
func (l *lock) epoch() (int32, error) {
	if l.named && l.basis.Epoch() > l.basis.Before {
		return int32(l.basis.Epoch()), nil
	}
	epoch, err := l.basis.NextEpoch()
	if err != nil {
		return 0, fmt.Errorf("%w: delete Lease %s", err, l.Describe())
	}
	return epoch, nil
}

// forLife reports whether this term is for life: nothing is renewed.
func (l *lock) forLife() bool { return l.owner != nil }

// stillHold answers a renewal from the Lease as it was last seen, for life: only another holder's, or its deletion, ends the term.
// Whether the store can be reached does not matter. It writes what describe says, where nothing else is written, if that has
// changed; that this fails ends nothing, and is tried with the next renewal.
func (l *lock) stillHold(ctx context.Context) error {
	seen, _ := l.view.Latest()
	if err := l.check(seen.Lease); err != nil {
		return l.end(err)
	}
	next := seen.Lease.DeepCopy()
	if !l.describe(next) {
		return nil
	}
	written, err := l.api.Update(fence.With(ctx, l.token()), next)
	if err != nil {
		l.logger.V(2).Info("Could not write who holds the lease and who could succeed it", "err", err)
		return nil
	}
	l.adopt(written, time.Time{})
	return nil
}

// describe puts on next what this process says of itself, also if somebody has edited that or taken it off, and what is known of
// those who follow it: who could succeed it, and whether the one lives who was taken for dead. It reports whether that has changed
// anything.
func (l *lock) describe(next *coordinationv1.Lease) (changed bool) {
	if countSuspicion(&l.presence, l.follows) {
		l.logger.Info("The replica that was taken for dead lives: its address refused connections. Check what is between, a firewall or a proxy. Deaths are doubted for some time",
			"suspicions", l.presence.Suspicions)
	}
	p := l.presence
	if highest, _ := l.standbys(); highest > p.Priority {
		p.StandbyPriority = highest
	}
	return p.WriteTo(next)
}

// renew does not write what is as good as new: client-go's first renewal follows right on the acquiring write, while
// the term's own first writes are on their way.
func (l *lock) renew(ctx context.Context, held *coordinationv1.Lease, ler resourcelock.LeaderElectionRecord) error {
	if time.Since(l.renewed().sent) < l.fresh {
		return nil
	}
	next := held.DeepCopy()
	next.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(&ler)
	next.Spec.LeaseTransitions = held.Spec.LeaseTransitions
	_ = l.describe(next)
	sent := time.Now()
	written, err := l.api.Update(fence.With(ctx, l.token()), next)
	switch {
	case apierrors.IsNotFound(err):
		return l.end(because(Deposed, "the Lease was deleted"))
	case fence.IsFenced(err):
		return l.end(because(Fenced, "the renewal was refused"))
	}
	if err != nil {
		if !apierrors.IsConflict(err) { // which is an answer: the Lease was edited, or a renewal that had failed was made after all
			l.falter(sent)
		}
		l.distrust()
		l.logger.V(2).Info("Could not renew the lease", "err", err)
		return fmt.Errorf("renew the lease: %w", err)
	}
	l.adopt(written, sent)
	l.logger.V(6).Info("Renewed the lease", "revision", written.ResourceVersion)
	return nil
}

// reread reads the Lease and adopts what others have edited on it, if it still shows this term.
func (l *lock) reread(ctx context.Context) (*coordinationv1.Lease, error) {
	sent := time.Now()
	list, err := l.api.Read(ctx)
	if err != nil {
		l.falter(sent)
		return nil, err
	}
	read := l.view.SeeList(list)
	if err := l.check(read); err != nil {
		_ = l.end(err)
		return nil, err
	}
	l.adopt(read, time.Time{})
	return read, nil
}

// check returns an error of cause Deposed if that Lease shows another term than this one.
func (l *lock) check(held *coordinationv1.Lease) error {
	if err := l.pin.Check(held); err != nil {
		return because(Deposed, "%w", err)
	}
	return nil
}

// adopt makes held what the next write goes on from. sent is zero for a read: it renews nothing.
func (l *lock) adopt(held *coordinationv1.Lease, sent time.Time) {
	l.mu.Lock()
	l.lease, l.stale = held, false
	if !sent.IsZero() {
		l.tries = renewals{sent: sent}
	}
	l.mu.Unlock()
	l.view.See(held)
}

// release gives the lease up, with how the term ended, unless it is lost. It must follow RunOrDie's return: nothing else
// writes then. It may be tried again until ctx ends: that a release was lost on its way shows in the next read.
func (l *lock) release(ctx context.Context, how ending) error {
	how.lasted = time.Since(l.takeover.Acquired)
	for first := true; ; first = false {
		held, cause := l.held()
		if errors.Is(cause, Deposed) {
			return nil
		}
		written, err := l.api.Update(fence.With(ctx, l.token()), freed(held, how))
		switch {
		case err == nil:
			l.view.See(written)
			return nil
		case fence.IsFenced(err):
			return nil // as below
		}
		if !first || !apierrors.IsConflict(err) { // a conflict: the Lease was edited
			lease.Sleep(ctx, retryRelease)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("release the lease: %w", err)
		}
		if _, err := l.reread(ctx); errors.Is(err, Deposed) {
			return nil // released, by the write whose answer was lost, or somebody else's
		}
	}
}

// retryRelease is the time between attempts to release, when the first finds the Lease edited or the store in trouble.
const retryRelease = 20 * time.Millisecond

// writeFunc creates or updates the Lease and returns it as written.
type writeFunc func(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)

// token is the term's, which every write of it carries: it is refused, whatever revision it names, once a later term has
// begun. The acquiring write cannot have one.
func (l *lock) token() fence.Token {
	return fence.Token{
		Cluster: l.cluster, Namespace: l.api.Namespace, Name: l.api.Name,
		UID: l.pin.UID, Holder: l.pin.Holder, Epoch: l.pin.Epoch,
	}
}

// held returns the Lease as this term last wrote or read it, nil before it was acquired; and, once the lock is over,
// why.
func (l *lock) held() (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lease, l.cause
}

// renewed is how the renewals go.
func (l *lock) renewed() renewals {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tries
}

// distrust has the Lease read before the next write.
func (l *lock) distrust() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stale = true
}

func (l *lock) isStale() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stale
}

// falter takes in that an attempt to renew has failed that was sent then: its write, or the read that client-go makes first once a
// write has failed.
func (l *lock) falter(sent time.Time) {
	l.mu.Lock()
	l.tries.failed = sent
	l.mu.Unlock()
	signal(l.faltered)
}

// fail ends an attempt.
func (l *lock) fail(err error) error {
	err = l.end(fmt.Errorf("%w: %w", errNotAcquired, err))
	l.giveUp()
	return err
}

// errNotAcquired is wrapped in the outcome of an attempt that failed.
var errNotAcquired = errors.New("not acquired")

// end makes every later call fail with the first cause it is given, which it returns.
func (l *lock) end(cause error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil {
		l.cause = cause
		close(l.over)
	}
	return l.cause
}

// record is a Lease as client-go wants it.
func record(held *coordinationv1.Lease) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r := resourcelock.LeaseSpecToLeaderElectionRecord(&held.Spec)
	raw, err := json.Marshal(r)
	return r, raw, err
}
