package controllertest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election/fence"
)

const (
	// settle is how long a controller may work before it is cancelled. The result does not depend on what it gets
	// done.
	settle = 100 * time.Millisecond
	// patience is how long a loaded machine may take for what normally takes no time.
	patience = 30 * time.Second
)

// Check checks that a controller fulfils the contract of controllers.Controller and Descriptor.New. It runs the
// controller for two terms on the same informers, and for a third that has ended before it begins. The controller must
// stop when its context ends and not before, return nil or the context's error, and leave no goroutine and no event
// handler behind. Its constructor must start neither.
//
// newDeps is called once. Its informers should be running and synced (see Informer). Its clients may be fakes;
// Server.Check also checks the writes. Each term has a token of its own.
func Check(t *testing.T, d controllers.Descriptor, newDeps func(t *testing.T) controllers.Deps) {
	t.Helper()
	check(t, d, newDeps(t), nil)
}

// failer is the part of testing.T that Check uses.
type failer interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// check does not check writes if s is nil.
func check(t failer, d controllers.Descriptor, deps controllers.Deps, s *Server) {
	t.Helper()
	for i, of := range []struct {
		name   string
		length time.Duration
	}{
		{"the first term", settle}, {"the second term", settle}, {"a term that is over already", 0},
	} {
		if d.Scope != controllers.EveryReplica {
			deps.Token = tokenOf(int64(i + 1))
		}
		if s == nil {
			term(t, of.name, d, deps, of.length)
			continue
		}
		var err error
		if deps.Clients, err = s.begin(deps.Token); err != nil {
			t.Fatalf("make clients: %v", err)
		}
		term(t, of.name, d, deps, of.length)
		untokened, undecided := s.end()
		if len(untokened) > 0 {
			t.Errorf("%s: %s made writes that do not carry its term's token: it must write with the clients of its Deps only: %q", of.name, d.Name, untokened)
		}
		if len(undecided) > 0 {
			t.Errorf("%s: %s made writes that do not say what they were decided on: older state may win: %q", of.name, d.Name, undecided)
		}
	}
}

// tokenOf returns the token of a term.
func tokenOf(epoch int64) fence.Token {
	return fence.Token{
		Cluster: clusters.SystemAdmin, Namespace: "kube-system", Name: "controllertest",
		UID: "some-uid", Holder: fmt.Sprintf("holder-%d", epoch), Epoch: epoch,
	}
}

// term runs the controller for length. If that is 0, the context ends before Run.
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

// handlers returns the number of event handlers on all informers.
func handlers(informers controllers.Informers) int {
	n := 0
	for _, informer := range informers.All() {
		n += informer.Handlers()
	}
	return n
}

func stacks() []byte {
	buf := make([]byte, 1<<20)
	return buf[:runtime.Stack(buf, true)]
}
