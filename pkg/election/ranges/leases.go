package ranges

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// leases is a client for the Leases of a namespace whose watches cost the server one: it watches all of them, and tells
// each watch of one Lease what concerns that. Its other requests are those of the client that it has.
type leases struct {
	election.LeaseClient
	timeout, longest time.Duration // of a request, and between two attempts to watch

	mu      sync.Mutex
	latest  map[string]*seenLease // nil: nothing was read yet; never changed, but replaced
	changed chan struct{}         // closed at the next change
	watches map[*watchOfOne]struct{}

	standing lease.Standing // tells people if they cannot be watched
}

func newLeases(client election.LeaseClient, timeout, longest time.Duration) *leases {
	l := &leases{LeaseClient: client, timeout: timeout, longest: longest, changed: make(chan struct{}), watches: map[*watchOfOne]struct{}{}}
	l.standing.Cannot = "Cannot watch the Leases of the ranges: until it can, this process sees late who leads which (it takes the verbs list and watch)"
	l.standing.Again, l.standing.Key = "The Leases of the ranges can be watched again", "lease"
	return l
}

// seenLease is a Lease, and what it says, decoded: it is looked at much more often than it changes.
type seenLease struct {
	*coordinationv1.Lease
	said  lease.Presence // of its holder
	left  lease.Presence // of its last holder: see lease.PredecessorOf
	lives bool           // it stands for the life of a process
}

func see(l *coordinationv1.Lease) *seenLease {
	return &seenLease{l, lease.PresenceOf(l), lease.PredecessorOf(l), lease.StandsForLife(l)}
}

// lease returns the Lease; nil if there is none.
func (s *seenLease) lease() *coordinationv1.Lease {
	if s == nil {
		return nil
	}
	return s.Lease
}

// holder returns the holder of the Lease; empty if there is none.
func (s *seenLease) holder() string {
	if s == nil {
		return ""
	}
	return ptr.Deref(s.Spec.HolderIdentity, "")
}

// all returns the Leases as last seen, by name, and a channel that is closed when one has changed. It returns nil
// before they were read. Callers must not change the map.
func (l *leases) all() (map[string]*seenLease, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latest, l.changed
}

// run keeps them up to date until ctx ends, and then ends all watches. name is that of the election.
func (l *leases) run(ctx context.Context, name string) {
	pause := lease.NewBackoff(l.longest)
	for ctx.Err() == nil {
		began := time.Now()
		watched, err := l.follow(ctx)
		if !watched && ctx.Err() == nil {
			l.standing.Failed(klog.FromContext(ctx), name, began, err)
		}
		if time.Since(began) >= l.longest {
			pause = lease.NewBackoff(l.longest)
		}
		delay := pause.Next()
		klog.FromContext(ctx).V(4).Info("Watching the Leases of the ranges again", "after", delay, "err", err)
		lease.Sleep(ctx, delay)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.watches {
		l.end(w)
	}
}

// follow reads all Leases, and watches them until the watch ends. watched reports whether it began.
func (l *leases) follow(ctx context.Context) (watched bool, err error) {
	reading, cancel := context.WithTimeout(ctx, l.timeout)
	list, err := l.List(reading, metav1.ListOptions{})
	cancel()
	if err != nil {
		return false, fmt.Errorf("read the Leases of the namespace: %w", err)
	}
	l.replace(list)
	events, err := lease.BeginWatch(ctx, l.timeout, l.LeaseClient.Watch, metav1.ListOptions{ResourceVersion: list.ResourceVersion, AllowWatchBookmarks: true})
	if err != nil {
		return false, err
	}
	l.standing.Succeeded(klog.FromContext(ctx))
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return true, ctx.Err()
		case event, open := <-events.ResultChan():
			switch {
			case !open:
				return true, errors.New("the watch ended")
			case event.Type == watch.Error:
				return true, fmt.Errorf("watch the Leases of the namespace: %w", apierrors.FromObject(event.Object))
			case event.Type != watch.Bookmark:
				l.take(event)
			}
		}
	}
}

// replace records a list of all, and tells what has changed since the last event.
func (l *leases) replace(list *coordinationv1.LeaseList) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.latest
	l.latest = map[string]*seenLease{}
	for i := range list.Items {
		now := &list.Items[i]
		l.latest[now.Name] = see(now)
		if was := before[now.Name]; was == nil || was.ResourceVersion != now.ResourceVersion {
			l.tell(watch.Event{Type: watch.Modified, Object: now})
		}
	}
	for name, was := range before {
		if l.latest[name] == nil {
			gone := was.DeepCopy()
			gone.ResourceVersion = list.ResourceVersion
			l.tell(watch.Event{Type: watch.Deleted, Object: gone})
		}
	}
	l.signal()
}

// take records an event.
func (l *leases) take(event watch.Event) {
	changed, ok := event.Object.(*coordinationv1.Lease)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = maps.Clone(l.latest)
	l.latest[changed.Name] = see(changed)
	if event.Type == watch.Deleted {
		delete(l.latest, changed.Name)
	}
	l.tell(event)
	l.signal()
}

func (l *leases) signal() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Watch watches the Lease that the options select by its name. It sends what has changed since their revision, and may
// send what is older.
func (l *leases) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	selector, err := fields.ParseSelector(opts.FieldSelector)
	if err != nil {
		return nil, err
	}
	name, one := selector.RequiresExactMatch(metav1.ObjectNameField)
	if !one {
		return l.LeaseClient.Watch(ctx, opts)
	}
	w := &watchOfOne{of: l, name: name, events: make(chan watch.Event, mostPending)}
	l.mu.Lock()
	l.watches[w] = struct{}{}
	l.mu.Unlock()
	// What happened since the options' revision may have been told before the watch was there.
	list, err := l.List(ctx, metav1.ListOptions{FieldSelector: opts.FieldSelector})
	if err != nil {
		w.Stop()
		return nil, err
	}
	event := watch.Event{Type: watch.Deleted, Object: &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: list.ResourceVersion}}}
	if len(list.Items) > 0 {
		event = watch.Event{Type: watch.Modified, Object: &list.Items[0]}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, runs := l.watches[w]; runs {
		l.send(w, event)
	}
	return w, nil
}

// mostPending is how many events a watch may be behind. One that is further behind ends.
const mostPending = 64

// watchOfOne is a watch of one Lease.
type watchOfOne struct {
	of     *leases
	name   string
	events chan watch.Event
}

// ResultChan returns the events. It is closed when the watch has ended.
func (w *watchOfOne) ResultChan() <-chan watch.Event { return w.events }

// Stop ends the watch.
func (w *watchOfOne) Stop() {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	w.of.end(w)
}

// end ends a watch. The caller holds mu.
func (l *leases) end(w *watchOfOne) {
	if _, runs := l.watches[w]; runs {
		delete(l.watches, w)
		close(w.events)
	}
}

// tell sends an event to the watches that it concerns. The caller holds mu.
func (l *leases) tell(event watch.Event) {
	name := event.Object.(*coordinationv1.Lease).Name
	for w := range l.watches {
		if w.name == name {
			l.send(w, event)
		}
	}
}

// send sends an event to a watch, or ends the watch if it is too far behind. The caller holds mu.
func (l *leases) send(w *watchOfOne, event watch.Event) {
	select {
	case w.events <- event:
	default:
		l.end(w)
	}
}
