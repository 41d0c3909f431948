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

// heldLease is the Lease as one term holds it, from the attempt to acquire it to the release. It is acquired by one write, on the very
// revision that the standby judged. From then on it is pinned to the uid, holder and epoch of that write: it is written only on the
// revision of its own last write, or of a read that shows the same three.
//
// One goroutine at a time acquires, writes and releases. The other methods may be called at any time.
type heldLease struct {
	cfg      Config
	api      lease.API
	view     *lease.View
	logger   klog.Logger
	identity string
	basis    lease.Observation // what the standby judged
	presence lease.Presence    // what the Lease is to say of this process
	takeover Takeover          // how the term comes about

	over chan struct{} // closed when the attempt has failed, or the term cannot go on

	mu    sync.Mutex
	lease *coordinationv1.Lease // the last write, or a later read of the same term; nil until acquired
	stale bool                  // lease may not be what the store has: it is read before the next write
	pin   lease.Pin             // valid once acquired
	cause error                 // set before over is closed
}

// acquire writes next, with all that a new term changes, in place of the Lease that was judged. Whether it succeeded is known from the
// answer only: a write whose answer is lost may have been committed, and the standby that then sees our identity clears it. It returns
// when the write was sent.
func (h *heldLease) acquire(ctx context.Context, next coordinationv1.LeaseSpec, epoch int32, owner ...metav1.OwnerReference) (sent time.Time, err error) {
	taken, write := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: h.api.Name}}, h.api.Create
	if h.basis.Lease != nil {
		taken, write = h.basis.Lease.DeepCopy(), h.api.Update
	}
	taken.Spec = next
	taken.Spec.LeaseTransitions = ptr.To(epoch)
	lease.Strip(taken)
	taken.OwnerReferences = append(slices.Clone(taken.OwnerReferences), owner...)
	h.presence.WriteTo(taken)
	sent = time.Now()
	written, err := write(ctx, taken)
	if err != nil {
		return sent, fmt.Errorf("acquire the lease: %w", err)
	}
	h.mu.Lock()
	h.lease = written
	h.takeover.Sent, h.takeover.Acquired = sent, time.Now()
	h.pin = lease.Pin{UID: written.UID, Holder: h.identity, Epoch: int64(epoch)}
	h.mu.Unlock()
	h.view.See(written) // before anybody judges this term by the view
	return sent, nil
}

// nextEpoch is the epoch of a term that begins on what was judged.
func (h *heldLease) nextEpoch() (int32, error) {
	epoch, err := h.basis.NextEpoch()
	if err != nil {
		return 0, fmt.Errorf("%w: delete Lease %s/%s", err, h.api.Namespace, h.api.Name)
	}
	return epoch, nil
}

// term is the term that holds the Lease. Valid once it is acquired.
func (h *heldLease) term() Term {
	return Term{token: h.token(), failedParts: strings.Join(h.basis.Predecessor().FailedParts, partsSeparator), takeover: h.takeover}
}

// token is the term's, which every write of it carries: it is refused, whatever revision it names, once a later term has
// begun. The acquiring write cannot have one.
func (h *heldLease) token() fence.Token {
	return fence.Token{
		Cluster: h.cfg.Cluster, Namespace: h.api.Namespace, Name: h.api.Name,
		UID: h.pin.UID, Holder: h.pin.Holder, Epoch: h.pin.Epoch,
	}
}

// update writes the Lease as the term's.
func (h *heldLease) update(ctx context.Context, next *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return h.api.Update(fence.With(ctx, h.token()), next)
}

// describe puts on next what this process says of itself, also if somebody has edited that or taken it off, and what is known of
// those who follow it: who could succeed it, and whether the one lives who was taken for dead. It reports whether that has changed
// anything.
func (h *heldLease) describe(next *coordinationv1.Lease) (changed bool) {
	if countSuspicion(&h.presence, h.cfg.follows) {
		h.logger.Info("The replica that was taken for dead lives: its address refused connections. Check what is between, a firewall or a proxy. Deaths are doubted for some time",
			"suspicions", h.presence.Suspicions)
	}
	p := h.presence
	if highest, _ := h.cfg.standbys(); highest > p.Priority {
		p.StandbyPriority = highest
	}
	return p.WriteTo(next)
}

// reread reads the Lease and adopts what others have edited on it, if it still shows this term.
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

// check returns an error of cause Deposed if that Lease shows another term than this one.
func (h *heldLease) check(held *coordinationv1.Lease) error {
	if err := h.pin.Check(held); err != nil {
		return because(Deposed, "%w", err)
	}
	return nil
}

// adopt makes held what the next write goes on from.
func (h *heldLease) adopt(held *coordinationv1.Lease) {
	h.mu.Lock()
	h.lease, h.stale = held, false
	h.mu.Unlock()
	h.view.See(held)
}

// distrust has the Lease read before the next write.
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

// release gives the lease up, with how the term ended, unless it is lost. Nothing else may write then. It does not heed ctx's end. It
// tries again until its own timeout: that a release was lost on its way shows in the next read.
func (h *heldLease) release(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.cfg.releaseTimeout())
	defer cancel()
	how := endingOf(cause)
	highest, none := h.cfg.standbys()
	how.standbyPriority, how.alone = highest, none && causeOf(cause) == Shutdown
	how.lasted = time.Since(h.takeover.Acquired)
	for first := true; ; first = false {
		held, cause := h.held()
		if errors.Is(cause, Deposed) {
			return nil
		}
		written, err := h.update(ctx, freed(held, how))
		switch {
		case err == nil:
			h.view.See(written)
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
		if _, err := h.reread(ctx); errors.Is(err, Deposed) {
			return nil // released, by the write whose answer was lost, or somebody else's
		}
	}
}

// retryRelease is the time between attempts to release, when the first finds the Lease edited or the store in trouble.
const retryRelease = 20 * time.Millisecond

// held returns the Lease as this term last wrote or read it, nil before it was acquired; and, once that is over, why.
func (h *heldLease) held() (*coordinationv1.Lease, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease, h.cause
}

// fail ends what holds the Lease: it keeps the first cause that it is given, which it returns.
func (h *heldLease) fail(cause error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause == nil {
		h.cause = cause
		close(h.over)
	}
	return h.cause
}

// end is fail for a term that is deposed: nothing more is written. A term that ends otherwise goes on to renew until it has drained.
func (h *heldLease) end(cause error) {
	if errors.Is(cause, Deposed) {
		_ = h.fail(cause)
	}
}

// lost is closed when the term cannot go on.
func (h *heldLease) lost() <-chan struct{} { return h.over }

// errNotAcquired is wrapped in the outcome of an attempt that failed.
var errNotAcquired = errors.New("not acquired")
