package rbac

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// eventsAhead is how many events a watch has ready: upstream sends those together that are there.
const eventsAhead = 10

// prefixed is a watch that begins with objects of its own, and goes on with another watch. Stop must be called, even if
// the watch has ended by itself: an event may still wait to be taken.
type prefixed struct {
	behind  watch.Interface
	out     chan watch.Event
	done    chan struct{} // closed by Stop
	passing sync.WaitGroup
	stop    func()
}

func after(objects []runtime.Object, events watch.Interface) watch.Interface {
	p := &prefixed{behind: events, out: make(chan watch.Event, eventsAhead), done: make(chan struct{})}
	p.stop = sync.OnceFunc(func() {
		close(p.done)
		events.Stop()
		p.passing.Wait()
	})
	p.passing.Go(func() { p.pass(objects) })
	return p
}

// pass sends until the watch behind has ended, or Stop is called.
func (p *prefixed) pass(objects []runtime.Object) {
	defer close(p.out)
	for _, obj := range objects {
		if !p.send(watch.Event{Type: watch.Added, Object: obj}) {
			return
		}
	}
	for {
		select {
		case event, ok := <-p.behind.ResultChan():
			if !ok || !p.send(event) {
				return
			}
		case <-p.done: // not all watches close their channel when they are stopped
			return
		}
	}
}

// send returns false if Stop was called before somebody took the event.
func (p *prefixed) send(event watch.Event) bool {
	select {
	case p.out <- event:
		return true
	case <-p.done:
		return false
	}
}

// Stop implements watch.Interface. It returns when nothing is passed on any more.
func (p *prefixed) Stop() { p.stop() }

// ResultChan implements watch.Interface.
func (p *prefixed) ResultChan() <-chan watch.Event { return p.out }
