package election

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// ForLife is the mode in which the lease does not expire. The holder keeps it until it releases it, until another
// replica knows that the holder's process is dead, or until the object that stands for the holder's life is deleted.
// Death on another machine can never be proved. If such a holder falls silent, the others wait until an operator
// declares it dead.
type ForLife struct {
	// Owner is the object that stands for this process's life, in the Lease's namespace. Its deletion means that
	// the process is dead. On a Kubernetes cluster use the process's Pod: the garbage collector then deletes the
	// Lease with it. Nil: the Elector creates a Lease named replica-<uuid> for this purpose, which other replicas
	// watch, and deletes it when Run ends.
	Owner *metav1.OwnerReference
}

// Name returns "for-life".
func (ForLife) Name() ModeName { return lease.ForLife }

// Electing returns false.
func (ForLife) Electing() bool { return false }

// Expires returns false.
func (ForLife) Expires() bool { return false }

func (m ForLife) kind() kind {
	return kind{
		name:        lease.ForLife,
		owned:       m.Owner != nil,
		unsuspected: true,
		// the standbys are written to the Lease, and the object that stands for its life is deleted
		requests:   2,
		unreleased: "Its lease does not expire: nobody leads until the work has stopped or this process is ended",
		standing: [3]string{
			"Cannot create the Lease that stands for the life of this process: until it can, this replica does not lead (it takes the verb create)",
			"The Lease that stands for the life of this process is there again", "object",
		},
		faults: m.faults,
		begin: func(e *Elector) mode {
			if m.Owner != nil {
				return &forLife{owner: m.Owner}
			}
			return &forLife{life: e.newLife()}
		},
	}
}

func (m ForLife) faults(cfg Config, name func(string) string) (faults []error) {
	switch {
	case cfg.Detection == DetectSuspect:
		faults = append(faults, fmt.Errorf("%s=%s contradicts %s=%s: in that mode nobody is succeeded on a suspicion; use %s",
			name("Detection"), DetectSuspect, name("Mode"), m.Name(), DetectCrash))
	case cfg.Detection == DetectOff && m.Owner == nil:
		faults = append(faults, fmt.Errorf("%s=%s contradicts %s=%s: nobody would notice that a leader is not heard and may be dead",
			name("Detection"), DetectOff, name("Mode"), m.Name()))
	}
	if o := m.Owner; o != nil && (o.UID == "" || o.Name == "" || o.Kind == "" || o.APIVersion == "") {
		faults = append(faults, fmt.Errorf("%s %+v is incomplete: it needs an API version, a kind, a name and a uid", name("Owner"), *o))
	}
	return faults
}

// forLife implements mode ForLife for one call of Run.
type forLife struct {
	plain
	owner *metav1.OwnerReference // ForLife.Owner; nil if life is set
	life  *life                  // the Lease that this process makes for its life; nil if owner is set
	// doubted: the last term was deposed, perhaps because the object that stands for this process's life was
	// deleted. The watch may not have shown that yet.
	doubted bool
}

func (m *forLife) run(ctx context.Context) {
	if m.life != nil {
		m.life.run(ctx)
	}
}

func (m *forLife) unready() <-chan struct{} {
	if m.life == nil {
		return nil
	}
	owner, changed := m.life.owner()
	if owner != nil {
		return nil
	}
	return changed
}

// ownerOfTerm returns the owner that the next term writes on the Lease.
func (m *forLife) ownerOfTerm(ctx context.Context) (*metav1.OwnerReference, error) {
	if m.life == nil {
		return m.owner, nil
	}
	if m.doubted {
		if err := m.life.watcher.Read(ctx); err != nil {
			return nil, err
		}
	}
	if owner, _ := m.life.owner(); owner != nil {
		return owner, nil
	}
	return nil, errors.New("the object that stands for this process's life does not exist")
}

// enter acquires the lease by one compare-and-swap.
func (m *forLife) enter(ctx context.Context, h *heldLease) (claim, error) {
	owner, err := m.ownerOfTerm(ctx)
	if err != nil {
		return nil, err
	}
	h.presence.Owner = owner.UID
	if m.life != nil {
		h.presence.Life = owner.Name
	}
	epoch, err := h.nextEpoch()
	if err == nil {
		_, err = h.acquire(ctx, coordinationv1.LeaseSpec{HolderIdentity: ptr.To(h.identity), AcquireTime: ptr.To(metav1.NowMicro())}, epoch, *owner)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotAcquired, err)
	}
	m.doubted = false
	l := &lifelong{describedLease: describedLease{heldLease: h}, mode: m}
	l.begin(ctx)
	return l, nil
}

// lifelong is the claim of a term whose lease is held for life. Nothing is renewed, and the term goes on while the
// store cannot be reached.
type lifelong struct {
	describedLease
	mode *forLife
}

func (l *lifelong) end(cause error) {
	l.heldLease.end(cause)
	l.mode.doubted = errors.Is(cause, Deposed)
}

var (
	_ mode  = (*forLife)(nil)
	_ claim = (*lifelong)(nil)
)
