package rbac

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// prefixed is a watch that begins with objects of its own. Its goroutine ends when the watch behind it has ended.
type prefixed struct {
	behind watch.Interface
	out    chan watch.Event
	done   chan struct{}
	stop   func()
}

func after(objects []runtime.Object, events watch.Interface) watch.Interface {
	p := &prefixed{behind: events, out: make(chan watch.Event), done: make(chan struct{})}
	p.stop = sync.OnceFunc(func() {
		close(p.done)
		events.Stop()
	})
	go p.pass(objects)
	return p
}

func (p *prefixed) pass(objects []runtime.Object) {
	defer close(p.out)
	for _, obj := range objects {
		if !p.send(watch.Event{Type: watch.Added, Object: obj}) {
			return
		}
	}
	for event := range p.behind.ResultChan() {
		if !p.send(event) {
			return
		}
	}
}

func (p *prefixed) send(event watch.Event) bool {
	select {
	case p.out <- event:
		return true
	case <-p.done:
		return false
	}
}

// Stop implements watch.Interface.
func (p *prefixed) Stop() { p.stop() }

// ResultChan implements watch.Interface.
func (p *prefixed) ResultChan() <-chan watch.Event { return p.out }
