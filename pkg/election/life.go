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
	l := &life{api: e.api.For(lease.LifeName(e.processLock.process)), presence: e.self(e.cfg.Instance), longest: e.cfg.RetryPeriod, standing: &e.standing}
	l.view, l.watcher = watcherOfLife(l.api, l.longest)
	return l
}

// watcherOfLife returns a view of a Lease that stands for the life of a process, and the watcher that keeps it up to
// date while it runs.
func watcherOfLife(api lease.API, longest time.Duration) (*lease.View, *lease.Watcher) {
	view := lease.NewView(logr.Discard(), func(string) bool { return false })
	return view, lease.NewLifeWatcher(api, view, longest)
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
	return lease.OwnerReference(seen.Lease.Name, seen.Lease.UID), changed
}
