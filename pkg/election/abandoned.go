package election

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// abandoned finds the Leases of presences that processes have left when they were killed. A process that is started
// anew has another one, so nobody else would delete them.
type abandoned struct {
	api    lease.API
	period time.Duration // between two looks
	seen   map[string]unrenewed
}

// unrenewed is a presence as it was first seen, on this process's clock.
type unrenewed struct {
	revision string
	since    time.Time
}

// sweep looks now and then until ctx ends, and deletes what nobody has renewed for a whole period, and for twice its
// own duration. A process that lives after all makes its presence anew: its terms have ended long before.
func (a *abandoned) sweep(ctx context.Context) {
	every := time.NewTicker(a.period)
	defer every.Stop()
	for {
		if err := a.look(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Could not delete the Leases of processes that are gone: trying again", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

func (a *abandoned) look(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, a.api.Timeout)
	defer cancel()
	list, err := a.api.Client.List(asking, metav1.ListOptions{})
	if err != nil {
		return err
	}
	before, now := a.seen, time.Now()
	a.seen = map[string]unrenewed{}
	for i := range list.Items {
		l := &list.Items[i]
		// nobody renews what stands for a lease for life
		if !lease.StandsForLife(l) || l.Spec.RenewTime == nil {
			continue
		}
		was, some := before[l.Name]
		if !some || was.revision != l.ResourceVersion {
			was = unrenewed{l.ResourceVersion, now}
		}
		a.seen[l.Name] = was
		if now.Sub(was.since) < max(a.period, 2*durationOf(l)) {
			continue
		}
		if err := a.api.For(l.Name).DeleteUnchanged(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

func durationOf(l *coordinationv1.Lease) time.Duration {
	return time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second
}
