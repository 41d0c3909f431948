package rbac

import (
	"slices"
	"testing"
	"testing/synctest"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// behind is a watch that, once it is stopped, neither ends nor sends.
type behind struct {
	events  chan watch.Event
	stopped bool
}

func (b *behind) Stop() { b.stopped = true }

func (b *behind) ResultChan() <-chan watch.Event { return b.events }

func newRole(name string) runtime.Object {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// The bubble of a test ends only when all goroutines in it have ended.
func TestAWatchThatIsStoppedHasEnded(t *testing.T) {
	own := slices.Repeat([]runtime.Object{newRole("a")}, 2*eventsAhead) // more than are ready at once
	readOwn := func(w watch.Interface) {
		for range own {
			<-w.ResultChan()
		}
	}
	for name, use := range map[string]func(watch.Interface, *behind){
		"before anything is read": func(watch.Interface, *behind) {},
		"among its own objects":   func(w watch.Interface, _ *behind) { <-w.ResultChan() },
		"behind its own objects":  func(w watch.Interface, _ *behind) { readOwn(w) },
		"with events that nobody takes": func(w watch.Interface, b *behind) {
			readOwn(w)
			for range eventsAhead + 1 {
				b.events <- watch.Event{Type: watch.Added, Object: newRole("c")}
			}
		},
		"after it has ended": func(_ watch.Interface, b *behind) { close(b.events) },
		"twice":              func(w watch.Interface, _ *behind) { w.Stop() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &behind{events: make(chan watch.Event)}
				w := after(own, b)
				use(w, b)
				w.Stop()
				sent := 0
				for range w.ResultChan() { // forever, if it goes on
					sent++
				}
				if sent > eventsAhead {
					t.Errorf("%d events are sent after the end, and %d could be ready", sent, eventsAhead)
				}
				if !b.stopped {
					t.Error("the watch behind it goes on")
				}
			})
		})
	}
}

func TestAWatchEndsWithTheOneBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &behind{events: make(chan watch.Event, 1)}
		w := after([]runtime.Object{newRole("a")}, b)
		b.events <- watch.Event{Type: watch.Deleted, Object: newRole("b")}
		close(b.events)
		var got []watch.EventType
		for event := range w.ResultChan() { // forever, if it does not end
			got = append(got, event.Type)
		}
		if len(got) != 2 || got[0] != watch.Added || got[1] != watch.Deleted {
			t.Errorf("it has sent %v", got)
		}
		w.Stop()
	})
}
