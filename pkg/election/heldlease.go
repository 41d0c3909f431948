package election

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// heldLease is the Lease during one term, from the attempt to acquire it to the release. One write acquires it, on
// exactly the revision that the standby judged. That write pins it to a uid, a holder and an epoch. Later writes are
// made only on the revision of the term's own last write, or of a read that shows the same uid, holder and epoch.
//
// Only one goroutine at a time may acquire, write or release. The other methods may be called at any time.
type heldLease struct {
	cfg      Config
	api      lease.API
	view     *lease.View
	logger   klog.Logger
	identity string
	basis    lease.Observation // what the standby judged
	presence lease.Presence    // what the Lease will say of this process
	takeover Takeover          // why and when the term begins

	over chan struct{} // closed when the attempt has failed, or when the term cannot go on

	mu    sync.Mutex
	lease *coordinationv1.Lease // the last write, or a later read of the same term; nil until acquired
	stale bool                  // lease may be older than what the store has: read it before the next write
	pin   lease.Pin             // valid once acquired
	cause error                 // set before over is closed
}

// acquire writes next as the spec of the Lease, together with all else that a new term changes. It succeeds only if the
// answer says so. If the answer is lost, the write may have been committed: the standby then sees this process's
// identity on the Lease and clears it. acquire returns when it sent the write.
func (h *heldLease) acquire(ctx context.Context, next coordinationv1.LeaseSpec, epoch int32, owner ...metav1.OwnerReference) (at time.Time, err error) {
	taken, write := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: h.api.Name}}, h.api.Create
	if h.basis.Lease != nil {
		taken, write = h.basis.Lease.DeepCopy(), h.api.Update
	}
	taken.Spec = next
	taken.Spec.LeaseTransitions = ptr.To(epoch)
	lease.Strip(taken)
	taken.OwnerReferences = append(slices.Clone(taken.OwnerReferences), owner...)
	h.presence.WriteTo(taken)
	at = time.Now()
	written, err := write(ctx, taken)
	if err != nil {
		return at, fmt.Errorf("acquire the lease: %w", err)
	}
	h.mu.Lock()
	h.lease = written
	h.takeover.Sent, h.takeover.Acquired = at, time.Now()
	h.pin = lease.Pin{UID: written.UID, Holder: h.identity, Epoch: int64(epoch)}
	h.mu.Unlock()
	h.view.See(written) // the view must have this write before anyone checks the term against it
	return at, nil
}

// nextEpoch returns the epoch of a term that begins on the Lease that the standby judged.
func (h *heldLease) nextEpoch() (int32, error) {
	epoch, err := h.basis.NextEpoch()
	if err != nil {
		return 0, fmt.Errorf("%w: delete Lease %s/%s", err, h.api.Namespace, h.api.Name)
	}
	return epoch, nil
}

// term returns the term that holds the Lease. Call it after the Lease was acquired.
func (h *heldLease) term() Term {
	return Term{token: h.token(), failedParts: strings.Join(h.basis.Predecessor().FailedParts, partsSeparator), takeover: h.takeover, drain: h.cfg.EffectiveDrainTimeout(), fenced: h.cfg.Fenced}
}

// token returns the term's token. Every write of the term carries it, so that the server refuses the write after a
// later term has begun. Only the acquiring write has no token.
func (h *heldLease) token() fence.Token {
	return fence.Token{
		Cluster: h.cfg.Cluster, Namespace: h.api.Namespace, Name: h.api.Name,
		UID: h.pin.UID, Holder: h.pin.Holder, Epoch: h.pin.Epoch,
	}
}

// update writes the Lease with the term's token.
func (h *heldLease) update(ctx context.Context, next *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return h.api.Update(fence.With(ctx, h.token()), next)
}

// describe writes on next what this process says of itself, and what it knows of its standbys. This also restores what
// somebody has edited or removed. If the process that was presumed dead when this term began is alive, that counts as a
// suspicion. describe reports whether next has changed.
func (h *heldLease) describe(next *coordinationv1.Lease) (changed bool) {
	if countSuspicion(&h.presence, h.cfg.follows) {
		h.logger.Info("The replica that seemed to be dead is alive: its address had refused connections. Check firewalls and proxies between the replicas. For some time standbys will not act on this sign alone",
			"suspicions", h.presence.Suspicions)
	}
	p := h.presence
	if highest, _ := h.cfg.standbys(); highest > p.Priority {
		p.StandbyPriority = highest
	}
	return p.WriteTo(next)
}

// reread reads the Lease. If that still shows this term, the next write starts from it, with the edits of others.
func (h *heldLease) reread(ctx context.Context) (*coordinationv1.Lease, error) {
	list, err := h.api.Read(ctx)
	if err != nil {
		return nil, err
	}
	read := h.view.SeeList(list)
	if err := h.check(read); err != nil {
		_ = h.fail(err)
		return nil, err
	}
	h.adopt(read)
	return read, nil
}

// check returns an error with the cause Deposed if held shows another term than this one.
func (h *heldLease) check(held *coordinationv1.Lease) error {
	if err := h.pin.Check(held); err != nil {
		return because(Deposed, "%w", err)
	}
	return nil
}

// adopt makes held the state from which the next write starts.
func (h *heldLease) adopt(held *coordinationv1.Lease) {
	h.mu.Lock()
	h.lease, h.stale = held, false
	h.mu.Unlock()
	h.view.See(held)
}

// distrust makes the next write read the Lease first.
func (h *heldLease) distrust() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stale = true
}

func (h *heldLease) isStale() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stale
}

// release gives the lease up and writes how the term ended, unless the term is already lost. Nothing else may write at
// the same time. It goes on after the end of ctx, and retries until its own timeout. A retry reads first, and so finds
// out whether a release without an answer was committed.
func (h *heldLease) release(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.cfg.releaseTimeout())
	defer cancel()
	how := endingOf(cause)
	highest, none := h.cfg.standbys()
	how.standbyPriority, how.alone = highest, none && causeOf(cause) == Shutdown
	how.lasted = time.Since(h.takeover.Acquired)
	for first := true; ; first = false {
		held, cause := h.lastLease()
		if errors.Is(cause, Deposed) {
			return nil
		}
		written, err := h.update(ctx, freed(held, how))
		switch {
		case err == nil:
			h.view.See(written)
			return nil
		case fence.IsFenced(err):
			return nil // a later term has begun
		}
		if !first || !apierrors.IsConflict(err) { // after a conflict (an edit) the first retry comes at once
			lease.Sleep(ctx, retryRelease)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("release the lease: %w", err)
		}
		if _, err := h.reread(ctx); errors.Is(err, Deposed) {
			return nil // released by a write whose answer was lost, or taken by another
		}
	}
}

// retryRelease is the time between two attempts to release.
const retryRelease = 20 * time.Millisecond

// lastLease returns the Lease as this term last wrote or read it, nil before it was acquired. The error says why the
// attempt or the term is over; nil if it is not.
func (h *heldLease) lastLease() (*coordinationv1.Lease, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease, h.cause
}

// fail ends the attempt or the term. It keeps the first cause that it gets, and returns that.
func (h *heldLease) fail(cause error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause == nil {
		h.cause = cause
		close(h.over)
	}
	return h.cause
}

// end stops all writes if the term is deposed. After any other cause renewals go on until the term has drained.
func (h *heldLease) end(cause error) {
	if errors.Is(cause, Deposed) {
		_ = h.fail(cause)
	}
}

// loss is closed when the attempt has failed, or when the term cannot go on.
func (h *heldLease) loss() <-chan struct{} { return h.over }

// errNotAcquired is wrapped by the error of an attempt that failed.
var errNotAcquired = errors.New("not acquired")
