package election

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// life is the object that stands for this process's life. It is an owner of the Lease that the process holds for life,
// and its deletion means that the process is dead. It is a Lease itself, like the identity Lease of an API server
// (KEP-1965), but nobody renews it.
type life struct {
	api      lease.API
	view     *lease.View
	watcher  *lease.Watcher
	presence lease.Presence // identifies this process
	longest  time.Duration  // between two attempts to create it
	standing *lease.Standing
}

// newLife returns the life of this process. Its Lease does not exist yet.
func (e *Elector) newLife() *life {
	l := &life{api: e.api.For(lease.LifeName(e.processLock.process)), presence: e.presence(e.cfg.Instance), longest: e.cfg.RetryPeriod, standing: &e.standing}
	l.view, l.watcher = e.watcherOf(l.api)
	return l
}

// watcherOf returns a view of a Lease that stands for the life of a process, and the watcher that keeps it up to date
// while it runs.
func (e *Elector) watcherOf(api lease.API) (*lease.View, *lease.Watcher) {
	view := lease.NewView(logr.Discard(), func(string) bool { return false })
	return view, lease.NewLifeWatcher(api, view, e.cfg.RetryPeriod)
}

// run keeps the object in existence until ctx ends, and then deletes it.
func (l *life) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	running.Go(func() { l.watcher.Run(watching) })
	defer l.standing.Over()
	retry := lease.NewBackoff(l.longest)
	for ctx.Err() == nil {
		seen, changed := l.view.Latest()
		var again time.Time
		if seen.IsKnown() && seen.Lease == nil {
			began := time.Now()
			if err := l.create(ctx); err != nil {
				l.standing.Failed(klog.FromContext(ctx), l.api.Name, began, err)
				again = time.Now().Add(retry.Next())
			} else {
				retry = lease.NewBackoff(l.longest)
			}
		} else if seen.Lease != nil { // by whichever attempt, whose answer may be lost
			l.standing.Succeeded(klog.FromContext(ctx))
		}
		timer := newAlarm(again)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
	if seen, _ := l.view.Latest(); seen.Lease != nil {
		if err := l.api.Delete(ctx, seen.Lease.UID); err != nil {
			klog.FromContext(ctx).Error(err, "The object that stood for this process's life is left: delete it", "object", l.api.Name)
		}
	}
}

func (l *life) create(ctx context.Context) error {
	object := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: l.api.Name}}
	object.Spec.HolderIdentity = ptr.To(l.presence.Holder)
	l.presence.WriteTo(object)
	written, err := l.api.Create(ctx, object)
	if apierrors.IsAlreadyExists(err) {
		l.watcher.Distrust() // the answer to an earlier create was lost
		return err
	}
	if err != nil {
		return err
	}
	l.view.See(written)
	return nil
}

// owner returns the owner of Leases that this process holds for life, nil while it does not exist. The channel is
// closed when that changes.
func (l *life) owner() (*metav1.OwnerReference, <-chan struct{}) {
	seen, changed := l.view.Latest()
	if seen.Lease == nil {
		return nil, changed
	}
	return lease.OwnerReference(seen.Lease), changed
}

// ownerOfHolder returns the Lease that stands for the life of the lease's holder. There is none if the lease is not
// held for life, if this process holds it, or if the owner is not a Lease. In that last case the garbage collector
// deletes the election's Lease with its owner.
func (e *Elector) ownerOfHolder(seen lease.Observation) (_ lease.Life, some bool) {
	if seen.Expires() || e.identities.ours(seen.Holder()) {
		return lease.Life{}, false
	}
	life := seen.Life()
	return life, life.Name != ""
}

// watchOwner watches, until ctx ends, the Lease that stands for the life of the lease's current holder, and reports its
// deletion to e.peer.
func (e *Elector) watchOwner(ctx context.Context) {
	whileShown(ctx, e.view, e.ownerOfHolder, func(ctx context.Context, owner lease.Life, some bool) {
		if !some {
			return
		}
		view, watcher := e.watcherOf(e.api.For(owner.Name))
		var running sync.WaitGroup
		defer running.Wait()
		running.Go(func() { watcher.Run(ctx) })
		for ctx.Err() == nil {
			seen, changed := view.Latest()
			// A deletion that waits for finalizers counts: the garbage collector's finalizers may wait for
			// a leader.
			if seen.IsKnown() && (seen.Lease == nil || seen.Lease.UID != owner.UID || seen.Lease.DeletionTimestamp != nil) {
				e.peer.setDeleted(owner.UID)
			}
			select {
			case <-ctx.Done():
			case <-changed:
			}
		}
	})
}
