package storage

import (
	"context"
	"strconv"
	"time"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/clusters"
)

// progressPause is the pause between two requests for progress. etcd may leave one unanswered.
const progressPause = 100 * time.Millisecond

// watchAll watches the objects of all logical clusters. Built-in ones come and go with their LogicalClusters, so two
// things are watched, and told in the order of etcd's revisions: a client that goes on later from what it saw last must
// have seen all that came before. An event waits until etcd has said that nothing older is to come from the other
// watch. Both go to etcd itself: only there they are on one stream, about whose progress etcd can be asked.
func (b *builtIn) watchAll(ctx context.Context, facts *BuiltIn, key string, opts storage.ListOptions) (watch.Interface, error) {
	source := b.client.clusterObjects.Load()
	if source == nil {
		return b.Interface.Watch(ctx, key, opts)
	}
	first, opts, err := b.list(ctx, key, opts)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(withSharedStream(ctx))
	opts.Recursive, opts.ProgressNotify = true, true
	stored, err := b.etcd.Watch(ctx, b.prefix, opts)
	if err != nil {
		cancel()
		return nil, err
	}
	of := storage.ListOptions{ResourceVersion: opts.ResourceVersion, Recursive: true, ProgressNotify: true, Predicate: storage.Everything}
	theirs, err := source.Watch(ctx, source.prefix, of)
	if err != nil {
		cancel()
		stored.Stop()
		return nil, err
	}
	w := b.newView(first, opts.Predicate)
	a := &all{
		view: w, builtIn: b, facts: facts, stored: side{from: stored}, clusters: side{from: theirs},
		ask: func() { _ = b.etcd.RequestWatchProgress(ctx) },
	}
	w.run(func() {
		defer theirs.Stop()
		defer stored.Stop()
		defer cancel()
		a.pass(ctx)
	})
	return w, nil
}

// all is a watch over all logical clusters.
type all struct {
	*view
	builtIn  *builtIn
	facts    *BuiltIn
	stored   side
	clusters side
	ask      func()
}

// side is one of two watches.
type side struct {
	from watch.Interface
	// next is what it has told last, and at is up to which revision it has told everything.
	next *watch.Event
	at   int64
}

// take takes what the watch has told.
func (s *side) take(event watch.Event) error {
	if event.Type == watch.Error {
		s.next = &event
		return nil
	}
	revision, err := strconv.ParseInt(versionOf(event.Object), 10, 64)
	if err != nil {
		return err
	}
	s.at = max(s.at, revision)
	if event.Type != watch.Bookmark {
		s.next = &event
	}
	return nil
}

// pending returns the channel to receive from: none while an event waits.
func (s *side) pending() <-chan watch.Event {
	if s.next != nil {
		return nil
	}
	return s.from.ResultChan()
}

func (s *side) revision() int64 {
	revision, _ := strconv.ParseInt(versionOf(s.next.Object), 10, 64)
	return revision
}

// pass passes events until one of the two watches ends.
func (a *all) pass(ctx context.Context) {
	again := time.NewTicker(progressPause)
	defer again.Stop()
	asked := false
	for {
		for a.ready() {
			asked = false
			if !a.tellNext(ctx) {
				return
			}
		}
		waits := a.stored.next != nil || a.clusters.next != nil
		if waits && !asked {
			a.ask()
			asked = true
		}
		var ok bool
		var event watch.Event
		var err error
		select {
		case event, ok = <-a.stored.pending():
			if ok {
				err = a.stored.take(event)
			}
		case event, ok = <-a.clusters.pending():
			if ok {
				err = a.clusters.take(event)
			}
		case <-again.C:
			asked, ok = false, true
		case <-a.done:
			return
		}
		if !ok || err != nil {
			return
		}
	}
}

// ready reports whether there is an event that nothing older can follow.
func (a *all) ready() bool {
	for _, s := range []struct{ has, other *side }{{&a.stored, &a.clusters}, {&a.clusters, &a.stored}} {
		if s.has.next == nil {
			continue
		}
		if s.has.next.Type == watch.Error || s.other.next != nil || s.other.at >= s.has.revision() {
			return true
		}
	}
	return false
}

// tellNext sends the oldest event that waits. It returns false if that was the last one.
func (a *all) tellNext(ctx context.Context) bool {
	of := &a.stored
	if a.stored.next == nil || a.clusters.next != nil && a.stored.next.Type != watch.Error && a.clusters.revision() <= a.stored.revision() {
		of = &a.clusters
	}
	event := *of.next
	of.next = nil
	if event.Type == watch.Error {
		a.send(event)
		return false
	}
	if of == &a.clusters {
		return a.tellCluster(event)
	}
	event, ok := a.translate(event, func(is metav1.Object) runtime.Object { return a.find(ctx, is) })
	return !ok || a.send(event)
}

// tellCluster tells what a change of a LogicalCluster means for what is built into it.
func (a *all) tellCluster(event watch.Event) bool {
	lc, ok := event.Object.(*corev1alpha1.LogicalCluster)
	if !ok || event.Type == watch.Modified {
		return true
	}
	told := false
	for _, obj := range a.builtIn.of(clusters.BuiltIn{LogicalCluster: lc, RootCA: a.facts.RootCA}) {
		if event.Type == watch.Deleted {
			if !a.sendGone(obj, lc.ResourceVersion) {
				return false
			}
			told = true
			continue
		}
		selected, err := a.predicate.Matches(obj)
		if err != nil || !selected {
			continue
		}
		if !a.send(watch.Event{Type: watch.Added, Object: obj}) {
			return false
		}
		told = true
	}
	if !told || !a.predicate.AllowWatchBookmarks {
		return true
	}
	// The objects' resourceVersions are older than this event. Whoever goes on from there would see it again.
	bookmark, err := a.builtIn.bookmark(lc.ResourceVersion)
	return err == nil && a.send(watch.Event{Type: watch.Bookmark, Object: bookmark})
}

// find returns the built-in object with an object's name in its logical cluster.
func (a *all) find(ctx context.Context, is metav1.Object) runtime.Object {
	if !clusters.MayBeBuiltIn(is.GetName()) {
		return nil
	}
	lc, err := a.facts.Cached(ctx, clusters.KeyOf(is).Cluster)
	if err != nil {
		return nil
	}
	for _, obj := range a.builtIn.of(clusters.BuiltIn{LogicalCluster: lc, RootCA: a.facts.RootCA}) {
		if of, err := meta.Accessor(obj); err == nil && of.GetName() == is.GetName() && of.GetNamespace() == is.GetNamespace() {
			return obj
		}
	}
	return nil
}
