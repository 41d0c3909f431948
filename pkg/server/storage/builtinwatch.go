package storage

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/clusters"
)

// eventsAhead is how many events a watch has ready: upstream sends those together that are there.
const eventsAhead = 10

// Watch implements storage.Interface. A watch that begins with what exists begins with the built-in objects that are
// not stored. From then on those of one logical cluster are always the same, until it goes.
func (b *builtIn) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	facts, cluster, ok := b.facts(ctx)
	switch {
	case ok && cluster == clusters.Wildcard:
		return b.watchAll(ctx, facts, key, opts)
	case !ok:
		return b.Interface.Watch(ctx, key, opts)
	}
	objects, _, err := b.objects(ctx)
	if err != nil {
		return nil, err
	}
	objects = slices.DeleteFunc(objects, func(obj runtime.Object) bool {
		of, err := b.key(obj)
		_, in := below(of, key, opts.Recursive)
		return err != nil || !in
	})
	if len(objects) == 0 {
		return b.Interface.Watch(ctx, key, opts)
	}
	w := b.newView(nil, opts.Predicate)
	shows := map[clusters.Key]runtime.Object{}
	for _, obj := range objects {
		shows[keyOfObject(obj)] = obj
	}
	if w.begins = beginsWithAll(opts); w.begins {
		if err := w.begin(ctx, b, objects); err != nil {
			return nil, err
		}
	}
	behind, err := b.Interface.Watch(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	gone, unfollow := b.client.gone.follow(cluster)
	w.run(func() {
		defer unfollow()
		defer behind.Stop()
		w.passOne(behind, shows, gone)
	})
	return w, nil
}

// beginsWithAll reports whether a watch begins with what exists.
func beginsWithAll(opts storage.ListOptions) bool {
	if opts.SendInitialEvents != nil {
		return *opts.SendInitialEvents
	}
	return opts.ResourceVersion == "" || opts.ResourceVersion == "0"
}

// begin has a watch begin with the built-in objects that it selects and that are not stored, by the watch cache. What
// the watch itself begins with is never older.
func (w *view) begin(ctx context.Context, b *builtIn, objects []runtime.Object) error {
	for _, obj := range objects {
		selected, err := w.predicate.Matches(obj)
		if err != nil {
			return err
		}
		key, err := b.key(obj)
		if err != nil {
			return err
		}
		there := b.newFunc()
		if err := b.Interface.Get(ctx, key, storage.GetOptions{IgnoreNotFound: true, ResourceVersion: "0"}, there); err != nil {
			return err
		}
		if selected && versionOf(there) == "" {
			w.first = append(w.first, watch.Event{Type: watch.Added, Object: obj})
			w.told[keyOfObject(obj)] = true
		}
	}
	return nil
}

// list returns the events with which a watch of all logical clusters begins, and the options with which it goes on.
func (b *builtIn) list(ctx context.Context, key string, opts storage.ListOptions) ([]watch.Event, storage.ListOptions, error) {
	if !beginsWithAll(opts) {
		return nil, opts, nil
	}
	asked := opts.SendInitialEvents != nil
	from := opts
	from.SendInitialEvents, from.ProgressNotify = nil, false
	from.ResourceVersionMatch = ""
	switch {
	case !asked:
		from.ResourceVersion = "0"
	case from.ResourceVersion != "":
		from.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	list := b.newList()
	if err := b.GetList(ctx, key, from, list); err != nil {
		return nil, opts, err
	}
	of, err := meta.ListAccessor(list)
	if err != nil {
		return nil, opts, err
	}
	var first []watch.Event
	err = meta.EachListItemWithAlloc(list, func(obj runtime.Object) error {
		first = append(first, watch.Event{Type: watch.Added, Object: obj})
		return nil
	})
	if err != nil {
		return nil, opts, err
	}
	if opts.Predicate.AllowWatchBookmarks {
		bookmark, err := b.bookmark(of.GetResourceVersion())
		if err == nil && asked {
			err = storage.AnnotateInitialEventsEndBookmark(bookmark)
		}
		if err != nil {
			return nil, opts, err
		}
		first = append(first, watch.Event{Type: watch.Bookmark, Object: bookmark})
	}
	opts.ResourceVersion, opts.ResourceVersionMatch, opts.SendInitialEvents = of.GetResourceVersion(), "", nil
	return first, opts, nil
}

func (b *builtIn) bookmark(version string) (runtime.Object, error) {
	out := b.newFunc()
	is, err := meta.Accessor(out)
	if err != nil {
		return nil, err
	}
	is.SetResourceVersion(version)
	return out, nil
}

// view is a watch in which built-in objects are as if they were stored.
type view struct {
	out       chan watch.Event
	done      chan struct{} // closed by Stop
	passing   sync.WaitGroup
	stop      func()
	predicate storage.SelectionPredicate
	last      func(tombstone metav1.Object) (runtime.Object, error)
	first     []watch.Event
	// touched are the built-in objects that are or were stored, as far as the watch has seen, and tombstones those
	// that are deleted.
	touched, tombstones map[clusters.Key]bool
	// begins says that the watch has begun with what exists. Then it has told of all that are in told, and of no
	// others.
	begins bool
	told   map[clusters.Key]bool
}

func (b *builtIn) newView(first []watch.Event, predicate storage.SelectionPredicate) *view {
	w := &view{
		out: make(chan watch.Event, eventsAhead), done: make(chan struct{}), predicate: predicate, last: b.last, first: first,
		touched: map[clusters.Key]bool{}, tombstones: map[clusters.Key]bool{}, told: map[clusters.Key]bool{},
	}
	w.stop = sync.OnceFunc(func() {
		close(w.done)
		w.passing.Wait()
	})
	return w
}

// run passes events in a goroutine that ends with the watch.
func (w *view) run(pass func()) {
	w.passing.Go(func() {
		defer close(w.out)
		for _, event := range w.first {
			if !w.send(event) {
				pass = func() {}
				break
			}
		}
		w.first = nil
		pass()
	})
}

// Stop implements watch.Interface. It returns when nothing is passed on any more.
func (w *view) Stop() { w.stop() }

// ResultChan implements watch.Interface.
func (w *view) ResultChan() <-chan watch.Event { return w.out }

// send returns false if Stop was called before somebody took the event.
func (w *view) send(event watch.Event) bool {
	select {
	case w.out <- event:
		return true
	case <-w.done:
		return false
	}
}

// passOne passes the events of one logical cluster.
func (w *view) passOne(behind watch.Interface, shows map[clusters.Key]runtime.Object, gone <-chan *corev1alpha1.LogicalCluster) {
	find := func(of metav1.Object) runtime.Object { return shows[clusters.KeyOf(of)] }
	for {
		select {
		case event, ok := <-behind.ResultChan():
			if !ok {
				return
			}
			if event, ok = w.translate(event, find); ok && !w.send(event) {
				return
			}
		case lc := <-gone:
			for _, obj := range shows {
				if !w.sendGone(obj, lc.ResourceVersion) {
					return
				}
			}
			gone = nil
		case <-w.done:
			return
		}
	}
}

// sendGone tells that a built-in object has gone with its logical cluster, at a revision. Of one that was stored, the
// watch has told before.
func (w *view) sendGone(obj runtime.Object, version string) bool {
	key := keyOfObject(obj)
	touched := w.touched[key]
	delete(w.touched, key)
	delete(w.tombstones, key)
	if touched {
		return true
	}
	if selected, err := w.predicate.Matches(obj); err != nil || !selected {
		return true
	}
	last := obj.DeepCopyObject()
	if is, err := meta.Accessor(last); err == nil {
		is.SetResourceVersion(before(version))
	}
	return w.send(watch.Event{Type: watch.Deleted, Object: last})
}

// before returns the revision before one. Several objects go at one revision: whoever has heard of some of them only,
// and goes on from there, must hear of the others.
func before(version string) string {
	revision, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return version
	}
	return strconv.FormatInt(revision-1, 10)
}

// translate makes of an event what it is for whoever knows the built-in objects. find returns the one of an object's
// name, or nil. It returns false if nothing is to be told.
func (w *view) translate(event watch.Event, find func(metav1.Object) runtime.Object) (watch.Event, bool) {
	if event.Type == watch.Bookmark || event.Type == watch.Error {
		return event, true
	}
	of, err := meta.Accessor(event.Object)
	if err != nil {
		return event, true
	}
	built := find(of)
	if built == nil {
		return event, true
	}
	key := clusters.KeyOf(of)
	first := !w.touched[key]
	w.touched[key] = true
	tombstone := clusters.IsTombstone(of)
	switch {
	case tombstone && event.Type == watch.Deleted:
		return event, false // its logical cluster is being emptied
	case tombstone:
		w.tombstones[key] = true
		last, err := w.last(of)
		if err != nil {
			return event, false
		}
		known, err := w.predicate.Matches(last)
		if w.begins && !w.told[key] {
			known = false
		}
		delete(w.told, key)
		return watch.Event{Type: watch.Deleted, Object: last}, known && err == nil
	case w.tombstones[key]:
		delete(w.tombstones, key)
		if event.Type == watch.Modified {
			event.Type = watch.Added
		}
	case first && event.Type == watch.Added && (!w.begins || w.told[key]):
		known, err := w.predicate.Matches(built)
		if is, failed := meta.Accessor(built); err == nil && failed == nil && known && is.GetUID() == of.GetUID() {
			event.Type = watch.Modified
		}
	}
	if w.begins {
		w.told[key] = event.Type != watch.Deleted
	}
	return event, true
}

func keyOfObject(obj runtime.Object) clusters.Key {
	is, err := meta.Accessor(obj)
	if err != nil {
		return clusters.Key{}
	}
	return clusters.KeyOf(is)
}

// departures tells watches that their logical cluster has gone.
type departures struct {
	mu  sync.Mutex
	all map[logicalcluster.Name]map[chan *corev1alpha1.LogicalCluster]struct{}
}

// follow returns a channel that gets the LogicalCluster when it goes, and what ends that.
func (d *departures) follow(cluster logicalcluster.Name) (<-chan *corev1alpha1.LogicalCluster, func()) {
	c := make(chan *corev1alpha1.LogicalCluster, 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = map[logicalcluster.Name]map[chan *corev1alpha1.LogicalCluster]struct{}{}
	}
	if d.all[cluster] == nil {
		d.all[cluster] = map[chan *corev1alpha1.LogicalCluster]struct{}{}
	}
	d.all[cluster][c] = struct{}{}
	return c, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.all[cluster], c)
		if len(d.all[cluster]) == 0 {
			delete(d.all, cluster)
		}
	}
}

// tell tells of a LogicalCluster that has gone.
func (d *departures) tell(lc *corev1alpha1.LogicalCluster) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.all[logicalcluster.From(lc)] {
		select {
		case c <- lc:
		default: // it has heard
		}
	}
}

var _ watch.Interface = (*view)(nil)
