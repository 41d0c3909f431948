package election

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// life is the object that stands for this process's life, among the owners of the Lease that it holds for life: whoever
// deletes it says that the process is dead. It is a Lease itself, that of the API server's own identity as KEP-1965 has it,
// but nobody renews it.
type life struct {
	*follower
	presence presence // says whose it is
}

// lifePrefix begins the names of such objects, which end with the process's uuid.
const lifePrefix = "replica-"

// leaseKind is the type of the object.
var leaseKind = coordinationv1.SchemeGroupVersion.WithKind("Lease")

// newLife returns the object of this process, which does not exist yet.
func (e *Elector) newLife() *life {
	return &life{follower: e.followerOf(lifePrefix + e.replica.process), presence: e.presence(e.cfg.Replica)}
}

// followerOf follows another Lease of the namespace, once it runs.
func (e *Elector) followerOf(name string) *follower {
	api := e.api
	api.name = name
	return newFollower(api, newView(logr.Discard(), func(string) bool { return false }), e.cfg.RetryPeriod)
}

// run keeps the object there until ctx ends, and then deletes it.
func (l *life) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	following, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	running.Go(func() { l.follower.run(following) })
	retry := shortestFollowDelay
	for ctx.Err() == nil {
		seen, changed := l.view.latest()
		var again time.Time
		if seen.known() && seen.lease == nil {
			if err := l.create(ctx); err != nil {
				klog.FromContext(ctx).V(2).Info("Cannot create the object that stands for this process's life: trying again", "object", l.api.name, "err", err)
				again = time.Now().Add(retry)
				retry = min(2*retry, l.longestDelay)
			} else {
				retry = shortestFollowDelay
			}
		}
		timer := newAlarm(again)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
	if seen, _ := l.view.latest(); seen.lease != nil {
		if err := l.api.delete(ctx, seen.lease.UID); err != nil {
			klog.FromContext(ctx).Error(err, "The object that stood for this process's life is left: delete it", "object", l.api.name)
		}
	}
}

func (l *life) create(ctx context.Context) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: l.api.name}}
	lease.Spec.HolderIdentity = ptr.To(l.presence.Holder)
	l.presence.write(lease)
	written, err := l.api.create(ctx, lease)
	if apierrors.IsAlreadyExists(err) {
		l.distrust() // an answer that was lost
		return err
	}
	if err != nil {
		return err
	}
	l.view.see(written)
	return nil
}

// owner is what a Lease that this process holds for life is owned by, nil while that does not exist; and a channel that is closed
// when that changes.
func (l *life) owner() (*metav1.OwnerReference, <-chan struct{}) {
	seen, changed := l.view.latest()
	if seen.lease == nil {
		return nil, changed
	}
	apiVersion, kind := leaseKind.ToAPIVersionAndKind()
	return &metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: seen.lease.Name, UID: seen.lease.UID}, changed
}

// unborn is closed when the object that stands for this process's life has changed, if it is not there; nil if it is, or need not
// be.
func (e *Elector) unborn() <-chan struct{} {
	if e.life == nil {
		return nil
	}
	owner, changed := e.life.owner()
	if owner != nil {
		return nil
	}
	return changed
}

// ownerOfTerm is what the Lease of the next term is owned by, nil if it is not held for life.
func (e *Elector) ownerOfTerm(ctx context.Context) (*metav1.OwnerReference, error) {
	if e.life == nil {
		return e.cfg.Owner, nil
	}
	if errors.Is(e.last.cause, Deposed) { // perhaps for its deletion, of which the watch has not told yet
		if _, _, err := e.life.read(ctx); err != nil {
			return nil, err
		}
	}
	if owner, _ := e.life.owner(); owner != nil {
		return owner, nil
	}
	return nil, errNoLife
}

// errNoLife is why a process cannot hold a lease for life yet.
var errNoLife = errors.New("the object that stands for this process's life is not there")

// owned is a Lease that stands for the life of a process.
type owned struct {
	name string
	uid  types.UID
}

// ownerOfHolder is the Lease that stands for the life of the lease's holder; none, if it is not held for life, by this process,
// or what stands for its life is no Lease: then the garbage collector tells, who deletes the Lease with it.
func (e *Elector) ownerOfHolder(seen observation) (_ owned, some bool) {
	if !seen.forLife() || e.identities.ours(seen.holder()) {
		return owned{}, false
	}
	life := lifeOf(seen.lease)
	return life, life.name != ""
}

// lifeOf is what stands for the life of the holder of a lease for life, its name if that is a Lease. What the holder says counts, also
// if somebody has taken that owner off; if it says nothing any more, the owner.
func lifeOf(lease *coordinationv1.Lease) owned {
	if p, said := saidPresence(lease); said {
		return owned{name: p.Life, uid: p.Owner}
	}
	return lifeAmongOwners(lease)
}

// lifeAmongOwners is the owner that is a Lease for a process's life.
func lifeAmongOwners(lease *coordinationv1.Lease) owned {
	if lease == nil {
		return owned{}
	}
	apiVersion, kind := leaseKind.ToAPIVersionAndKind()
	for _, owner := range lease.OwnerReferences {
		if owner.APIVersion == apiVersion && owner.Kind == kind && strings.HasPrefix(owner.Name, lifePrefix) {
			return owned{name: owner.Name, uid: owner.UID}
		}
	}
	return owned{}
}

// followOwner finds when the Lease is deleted that stands for the life of whoever holds the lease, until ctx ends.
func (e *Elector) followOwner(ctx context.Context) {
	following(ctx, e.view, e.ownerOfHolder, func(ctx context.Context, owner owned, some bool) {
		if !some {
			return
		}
		f := e.followerOf(owner.name)
		var running sync.WaitGroup
		defer running.Wait()
		running.Go(func() { f.run(ctx) })
		for ctx.Err() == nil {
			seen, changed := f.view.latest()
			// One that waits for finalizers is gone, too: those of the garbage collector may wait for a leader.
			if seen.known() && (seen.lease == nil || seen.lease.UID != owner.uid || seen.lease.DeletionTimestamp != nil) {
				e.peer.lose(owner.uid)
			}
			select {
			case <-ctx.Done():
			case <-changed:
			}
		}
	})
}
