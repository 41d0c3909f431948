package controllertest

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regent-project/regent/pkg/controllers"
)

const (
	// settle is how long a controller under test may work before it is cancelled. Nothing depends on what it gets done.
	settle = 100 * time.Millisecond
	// patience is how long the loaded machine of a test may take to do what takes no time.
	patience = 30 * time.Second
)

// Check runs a controller for two terms on the same informers, and for a third that ends before it has begun, and
// holds it to the contract of controllers.Controller and of Descriptor.New: it stops when its context ends and not
// before, returns nil or the context's error, and leaves no goroutine and no event handler behind; the constructor
// starts none of either.
//
// newDeps is called once. Its informers should be running and synced (see Informer), its clients may be fakes.
func Check(t *testing.T, d controllers.Descriptor, newDeps func(t *testing.T) controllers.Deps) {
	t.Helper()
	check(t, d, newDeps(t))
}

// failer is what of a test Check uses.
type failer interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

func check(t failer, d controllers.Descriptor, deps controllers.Deps) {
	t.Helper()
	term(t, "the first term", d, deps, settle)
	term(t, "the second term", d, deps, settle)
	term(t, "a term that is over already", d, deps, 0)
}

// term runs the controller for so long; not at all: with a context that has ended.
func term(t failer, name string, d controllers.Descriptor, deps controllers.Deps, length time.Duration) {
	t.Helper()
	goroutines := goleak.IgnoreCurrent()
	handlersBefore := handlers(deps.Informers)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	c, err := d.New(ctx, deps)
	if err != nil {
		t.Fatalf("%s: construct %s: %v", name, d.Name, err)
	}
	if n := handlers(deps.Informers); n != handlersBefore {
		t.Errorf("%s: constructor of %s added %d event handlers: that is Run's to do", name, d.Name, n-handlersBefore)
	}
	if err := goleak.Find(goroutines); err != nil {
		t.Errorf("%s: constructor of %s started goroutines: that is Run's to do: %v", name, d.Name, err)
	}

	if length == 0 {
		cancel()
	}
	returned := make(chan error, 1)
	go func() { returned <- c.Run(ctx) }()
	if length > 0 {
		select {
		case err := <-returned:
			t.Fatalf("%s: Run of %s returned before its context ended: %v", name, d.Name, err)
		case <-time.After(length):
		}
	}
	cancel()
	select {
	case err := <-returned:
		if err != nil && !errors.Is(err, ctx.Err()) {
			t.Errorf("%s: Run of %s returned %v after its context ended, want nil or the context's error", name, d.Name, err)
		}
	case <-time.After(patience):
		t.Fatalf("%s: Run of %s has not returned %v after its context ended:\n%s", name, d.Name, patience, stacks())
	}
	if n := handlers(deps.Informers); n != handlersBefore {
		t.Errorf("%s: %s left %d event handlers on informers", name, d.Name, n-handlersBefore)
	}
	if err := goleak.Find(goroutines); err != nil {
		t.Errorf("%s: %s left goroutines: %v", name, d.Name, err)
	}
}

// handlers is the number of event handlers on all informers of a process.
func handlers(informers controllers.Informers) int {
	n := 0
	count := func(v reflect.Value) {
		if inf, ok := v.Interface().(interface{ Handlers() int }); ok && !v.IsNil() {
			n += inf.Handlers()
		}
	}
	fields := reflect.ValueOf(informers)
	for i := range fields.NumField() {
		field := fields.Field(i)
		if field.Kind() != reflect.Map {
			count(field)
			continue
		}
		for _, entry := range field.Seq2() {
			count(entry)
		}
	}
	return n
}

func stacks() []byte {
	buf := make([]byte, 1<<20)
	return buf[:runtime.Stack(buf, true)]
}
