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

// life is the object that stands for this process's life, among the owners of the Lease that it holds for life: whoever
// deletes it says that the process is dead. It is a Lease itself, that of the API server's own identity as KEP-1965 has it,
// but nobody renews it.
type life struct {
	api      lease.API
	view     *lease.View
	watcher  *lease.Watcher
	presence lease.Presence // says whose it is
	longest  time.Duration  // between two attempts to create it
}

// newLife returns the object of this process, which does not exist yet.
func (e *Elector) newLife() *life {
	l := &life{api: e.api.For(lease.LifeName(e.processLock.process)), presence: e.presence(e.cfg.Replica), longest: e.cfg.RetryPeriod}
	l.view, l.watcher = e.watcherOf(l.api)
	return l
}

// watcherOf watches another Lease of the namespace, once it runs.
func (e *Elector) watcherOf(api lease.API) (*lease.View, *lease.Watcher) {
	view := lease.NewView(logr.Discard(), func(string) bool { return false })
	return view, lease.NewWatcher(api, view, e.cfg.RetryPeriod)
}

// run keeps the object there until ctx ends, and then deletes it.
func (l *life) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	following, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	running.Go(func() { l.watcher.Run(following) })
	retry := lease.NewBackoff(l.longest)
	for ctx.Err() == nil {
		seen, changed := l.view.Latest()
		var again time.Time
		if seen.Known() && seen.Lease == nil {
			if err := l.create(ctx); err != nil {
				klog.FromContext(ctx).V(2).Info("Cannot create the object that stands for this process's life: trying again", "object", l.api.Name, "err", err)
				again = time.Now().Add(retry.Next())
			} else {
				retry = lease.NewBackoff(l.longest)
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
		l.watcher.Distrust() // an answer that was lost
		return err
	}
	if err != nil {
		return err
	}
	l.view.See(written)
	return nil
}

// owner is what a Lease that this process holds for life is owned by, nil while that does not exist; and a channel that is closed
// when that changes.
func (l *life) owner() (*metav1.OwnerReference, <-chan struct{}) {
	seen, changed := l.view.Latest()
	if seen.Lease == nil {
		return nil, changed
	}
	return lease.OwnerReference(seen.Lease), changed
}

// ownerOfHolder is the Lease that stands for the life of the lease's holder; none, if it is not held for life, by this process,
// or what stands for its life is no Lease: then the garbage collector tells, who deletes the Lease with it.
func (e *Elector) ownerOfHolder(seen lease.Observation) (_ lease.Life, some bool) {
	if !seen.HeldForLife() || e.identities.ours(seen.Holder()) {
		return lease.Life{}, false
	}
	life := lease.LifeOf(seen.Lease)
	return life, life.Name != ""
}

// watchOwner finds when the Lease is deleted that stands for the life of whoever holds the lease, until ctx ends.
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
			// One that waits for finalizers is gone, too: those of the garbage collector may wait for a leader.
			if seen.Known() && (seen.Lease == nil || seen.Lease.UID != owner.UID || seen.Lease.DeletionTimestamp != nil) {
				e.peer.lose(owner.UID)
			}
			select {
			case <-ctx.Done():
			case <-changed:
			}
		}
	})
}
