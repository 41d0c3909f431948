package join

import (
	"bytes"
	"context"
	"runtime"
	"runtime/pprof"
	"strconv"
	"sync"
)

// OnEnd is Scope.OnEnd of the innermost scope to which the calling goroutine belongs. In none it does nothing: then
// what is registered stays. It is for code that does not know in which scope it is called, such as an informer to which
// controllers add handlers.
func OnEnd(undo func()) (forget func()) {
	if s := current(); s != nil {
		return s.OnEnd(undo)
	}
	return func() {}
}

// Outside calls f on a goroutine that belongs to no scope, and returns when f has returned. What f starts belongs to no
// scope either. It is for what lives as long as the process, and is made at its first use. A panic of f becomes one of
// Outside.
func Outside(f func()) {
	done := make(chan struct{})
	p := &Panic{Value: errGoexit}
	go func() {
		defer close(done)
		pprof.SetGoroutineLabels(context.Background())
		p = contain(f)
	}()
	<-done
	if p != nil {
		panic(p)
	}
}

// claims has, by the number of a goroutine, the scope that has started it. It holds those that scopes start themselves.
var claims sync.Map

// claim notes that the calling goroutine belongs to the scope, until release is called.
func claim(s *Scope) (release func()) {
	id := numberIn(header())
	claims.Store(id, s)
	return func() { claims.Delete(id) }
}

// current returns the innermost scope of the calling goroutine, or nil.
func current() *Scope {
	scopes.RLock()
	none := len(scopes.byPath) == 0
	scopes.RUnlock()
	if none {
		return nil
	}
	head := header()
	if s, ok := claims.Load(numberIn(head)); ok {
		return s.(*Scope)
	}
	path, _ := pathIn(head)
	if path == "" && !headersShowLabels() {
		path = lookAtSelf()
	}
	scopes.RLock()
	defer scopes.RUnlock()
	return scopes.byPath[path]
}

func forget(s *Scope) {
	scopes.Lock()
	defer scopes.Unlock()
	delete(scopes.byPath, s.path)
}

// header returns the first line of the calling goroutine's stack: "goroutine 7 [running]:".
func header() string {
	var line [1024]byte // labels can be in it
	head, _, _ := bytes.Cut(line[:runtime.Stack(line[:], false)], []byte("\n"))
	return string(head)
}

// numberIn returns the number in a header.
func numberIn(header string) uint64 {
	var digits string
	for i := len("goroutine "); i < len(header) && '0' <= header[i] && header[i] <= '9'; i++ {
		digits = header[len("goroutine ") : i+1]
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		panic("join: the runtime does not say the number of a goroutine in the first line of its stack: " + header)
	}
	return n
}

// headersShowLabels reports whether headers show labels, as with GODEBUG tracebacklabels=1. It does not change while a
// process runs, unless somebody sets GODEBUG in the environment of this process.
var headersShowLabels = sync.OnceValue(showLabels)

func showLabels() (ok bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(label, "0")))
		_, ok = pathIn(header())
	}()
	<-done
	return ok
}
