package join

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

// label is the profiler label by which goroutines of scopes are known. Its value is the scope's path.
const label = "regent.dev/join"

// DefaultPatience is how long after the end of a scope's context goroutines may go on before they are reported.
const DefaultPatience = 5 * time.Second

// Options say how a scope ends. The zero Options are good.
type Options struct {
	// Leave names functions beyond those of the package comment. A goroutine is not waited for while one of them is
	// on its stack. Names are as in a goroutine profile, such as "example.com/pool.(*Pool).worker"; those of
	// closures in a function need not be named.
	Leave []string
	// Patience is how long after the end of the scope's context goroutines may go on before they are reported,
	// those of the work itself included. The next report comes after twice that time, and so on. 0 stands for
	// DefaultPatience, a negative value for never.
	Patience time.Duration
	// OnLate, if set, gets the reports. It must not block. Nil: they are logged.
	OnLate func(*Late)
}

// Scope is a set of goroutines and of functions that undo something. Its states:
//
//	open --End--> ending: undoing and waiting --nothing is left--> ended
//
// Any goroutine may call its methods.
type Scope struct {
	options Options
	ctx     context.Context // has the labels, and the Scope
	over    chan struct{}   // closed when it begins to end
	path    string          // ids of the scopes that this one is in, and its own
	logger  klog.Logger
	done    chan struct{} // closed when it has ended
	watched chan struct{} // closed when nobody watches for who is late

	mu      sync.Mutex
	state   state
	doing   int       // calls of do
	undo    list.List // of func(), the latest last
	undoing bool      // a goroutine calls undo functions
	fault   *Panic    // the first of an undo function
}

type state int

const (
	open state = iota
	ending
	ended
)

// scopes are those that have not ended, by path.
var scopes = struct {
	sync.RWMutex
	byPath map[string]*Scope
}{byPath: map[string]*Scope{}}

var lastID atomic.Int64

type contextKey struct{}

// errEnded is the cause of the end of a scope's context, unless it has ended before.
var errEnded = fmt.Errorf("the work of this scope is over: %w", context.Canceled)

var errGoexit = errors.New("the work of this scope ended its goroutine with runtime.Goexit")

// New returns a scope in which nothing runs yet. Every scope must be ended. ctx gives it the logger and the values of
// its context. If ctx comes from another scope, the new one is in that. The end of ctx ends the scope's context.
func New(ctx context.Context, o Options) *Scope {
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	s := &Scope{options: o, logger: klog.FromContext(ctx), over: make(chan struct{}), done: make(chan struct{}), watched: make(chan struct{}), path: strconv.FormatInt(lastID.Add(1), 10)}
	if outer, ok := pprof.Label(ctx, label); ok {
		s.path = outer + "/" + s.path
	}
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	s.ctx = context.WithValue(pprof.WithLabels(inner, pprof.Labels(label, s.path)), contextKey{}, s)
	scopes.Lock()
	scopes.byPath[s.path] = s
	scopes.Unlock()
	// A goroutine of the scope ends the context, so that functions of context.AfterFunc inherit the label.
	s.start(func() {
		select {
		case <-ctx.Done():
			cancel(context.Cause(ctx))
		case <-s.over:
			cancel(errEnded)
		}
	})
	if o.Patience > 0 {
		go s.watch()
	} else {
		close(s.watched)
	}
	return s
}

// From returns the scope that ctx comes from, or nil.
func From(ctx context.Context) *Scope {
	s, _ := ctx.Value(contextKey{}).(*Scope)
	return s
}

// Do calls work in the scope, on a goroutine of its own, and returns when work has returned. What work has started goes
// on. ctx is the scope's. A panic of work becomes one of Do. Do panics if the scope has ended.
func (s *Scope) Do(work func(ctx context.Context)) {
	if p := s.do(work); p != nil {
		panic(p)
	}
}

func (s *Scope) do(work func(ctx context.Context)) (p *Panic) {
	s.mu.Lock()
	if s.state == ended {
		s.mu.Unlock()
		panic("join: Scope.Do after Scope.End")
	}
	s.doing++
	s.mu.Unlock()
	done := make(chan struct{})
	p = &Panic{Value: errGoexit} // remains if work calls runtime.Goexit
	s.start(func() {
		defer close(done)
		p = contain(func() { work(s.ctx) })
	})
	<-done
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doing--
	return p
}

// start calls f on a goroutine of the scope.
func (s *Scope) start(f func()) {
	go func() {
		pprof.SetGoroutineLabels(s.ctx)
		defer claim(s)()
		f()
	}()
}

// OnEnd has undo called at the end of the scope, on a goroutine of the scope: after the scope's context has ended,
// before the undo functions that were registered earlier, and once. If the scope has ended already, undo is called
// before OnEnd returns.
//
// A caller that has undone it by itself calls forget, so that a scope which lasts for long does not keep what is over.
// After undo was called forget does nothing.
func (s *Scope) OnEnd(undo func()) (forget func()) {
	s.mu.Lock()
	if s.state != ended {
		defer s.mu.Unlock()
		element := s.undo.PushBack(undo)
		return func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.undo.Remove(element)
		}
	}
	s.mu.Unlock()
	undo()
	return func() {}
}

// contains reports whether a goroutine whose label has that value belongs to the scope.
func (s *Scope) contains(path string) bool {
	return path == s.path || strings.HasPrefix(path, s.path+"/")
}

// Panic is a panic of code that a scope has called. It is the value of the panic that its caller gets.
type Panic struct {
	// Value is the argument of panic.
	Value any
	// Stack is the stack of the goroutine when it panicked.
	Stack []byte
}

// Error has the stack, because otherwise nobody would see it.
func (p *Panic) Error() string { return fmt.Sprintf("panic: %v\n%s", p.Value, p.Stack) }

// Unwrap returns Value, if it is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// contain calls f, and returns its panic.
func contain(f func()) (p *Panic) {
	defer func() {
		if value := recover(); value != nil {
			p = &Panic{Value: value, Stack: debug.Stack()}
		}
	}()
	f()
	return nil
}
