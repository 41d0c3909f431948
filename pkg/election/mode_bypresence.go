package election

import (
	"context"
	"fmt"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// ByPresence is the mode in which the lease is held for as long as the presence of its holder's process lasts. The
// process renews its Presence, and not the lease: so renewals are as many for a hundred leases as for one. Another
// replica takes the lease when the presence has expired or is over, or earlier if a Detector allows it, as in mode
// Renewed.
//
// To programs that do not know this mode such a Lease looks like one that is held for life: they wait until the Lease
// of the presence is deleted.
type ByPresence struct {
	// Presence is that of this process. Several Electors may share it, and each takes its Replica, its Instance,
	// its ReplicasDirectory and its holder identities. Its Run must last longer than that of the Electors. Nil: the
	// Elector has a Presence of its own, for as long as its Run lasts.
	Presence *Presence
}

// Name returns "by-presence".
func (ByPresence) Name() ModeName { return lease.ByPresence }

// Electing returns false.
func (ByPresence) Electing() bool { return false }

// Expires returns true.
func (ByPresence) Expires() bool { return true }

func (m ByPresence) kind() kind {
	return kind{
		name: lease.ByPresence,
		// the presence is released and deleted after the lease
		requests:   3,
		unreleased: "The lease is given up when it would have expired",
		presence:   m.presenceOf,
		begin:      func(e *Elector) mode { return &byPresence{elector: e, own: m.Presence == nil} },
	}
}

// presenceOf returns what keeps the leases of an Elector of that Config.
func (m ByPresence) presenceOf(cfg Config) (*Presence, error) {
	if m.Presence != nil {
		return m.Presence, nil
	}
	return NewPresence(cfg)
}

// byPresence implements mode ByPresence for one call of Run.
type byPresence struct {
	plain
	elector *Elector
	own     bool // the Presence is this Elector's own
}

func (m *byPresence) run(ctx context.Context) {
	if m.own {
		m.elector.presence.Run(ctx)
	}
}

func (m *byPresence) unready() <-chan struct{} { return m.elector.presence.absent() }

// enter acquires the lease by one compare-and-swap.
func (m *byPresence) enter(ctx context.Context, h *heldLease) (claim, error) {
	now := m.elector.presence.hold()
	if now == nil {
		return nil, fmt.Errorf("%w: %w", errNotAcquired, errAbsent)
	}
	h.identity, h.presence.Holder = now.holder, now.holder
	h.presence.Owner, h.presence.Life = now.object.UID, now.object.Name
	epoch, err := h.nextEpoch()
	if err == nil {
		_, err = h.acquire(ctx, coordinationv1.LeaseSpec{HolderIdentity: ptr.To(h.identity), AcquireTime: ptr.To(metav1.NowMicro())}, epoch, *now.object)
	}
	if err != nil {
		now.terms.Done()
		return nil, fmt.Errorf("%w: %w", errNotAcquired, err)
	}
	k := &presenceClaim{describedLease: describedLease{heldLease: h}, in: now, let: sync.OnceFunc(now.terms.Done)}
	k.begin(ctx, k.follow)
	return k, nil
}

// presenceClaim is the claim of a term whose lease is held for as long as this process's presence lasts.
type presenceClaim struct {
	describedLease
	in  *present
	let func() // lets the presence end
}

// follow ends the term with the presence. It returns then, or with ctx.
func (k *presenceClaim) follow(ctx context.Context) {
	select {
	case <-k.in.over:
		_ = k.fail(k.in.cause)
	case <-ctx.Done():
	}
}

// joined lets the presence end.
func (k *presenceClaim) joined() { k.let() }

// release gives the lease up.
func (k *presenceClaim) release(ctx context.Context, cause error) error {
	defer k.let()
	return k.heldLease.release(ctx, cause)
}

// lapse gives the lease up while work of the term has not stopped, because it does not expire while this process is
// present.
func (k *presenceClaim) lapse(ctx context.Context, cause error) error {
	if err := k.heldLease.release(ctx, cause); err != nil {
		return err
	}
	k.let()
	return nil
}

var (
	_ mode        = (*byPresence)(nil)
	_ claim       = (*presenceClaim)(nil)
	_ sharedClaim = (*presenceClaim)(nil)
)
