package perterm

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"runtime/pprof"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/regent-project/regent/pkg/election/join"
)

// label is the profiler label that has the name of a runnable on its goroutines, so that reports of late ones show it.
const label = "runnable"

// contained returns a runnable that turns a panic of r into an error. What a manager knows by its type is returned as it is.
func contained(r manager.Runnable) manager.Runnable {
	switch r.(type) {
	case *manager.Server, webhook.Server, interface{ GetCache() cache.Cache }:
		return r
	default:
		return &runnable{r}
	}
}

type runnable struct{ manager.Runnable }

// Start implements manager.Runnable.
func (r *runnable) Start(ctx context.Context) error {
	name := nameOf(r.Runnable)
	err := contain(func() (err error) {
		pprof.Do(ctx, pprof.Labels(label, name), func(ctx context.Context) { err = r.Runnable.Start(ctx) })
		return err
	})
	if _, panicked := errors.AsType[*join.Panic](err); panicked {
		return fmt.Errorf("runnable %s: %w", name, err)
	}
	return err
}

// contain calls f, and turns its panic into a *join.Panic.
func contain(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &join.Panic{Value: value, Stack: debug.Stack()}
		}
	}()
	return f()
}

// NeedLeaderElection says to which group the manager adds the runnable.
func (r *runnable) NeedLeaderElection() bool {
	if l, ok := r.Runnable.(manager.LeaderElectionRunnable); ok {
		return l.NeedLeaderElection()
	}
	return true // as a manager takes it
}

// nameOf returns the type of a runnable, and its field Name if there is one, as controllers have.
func nameOf(r manager.Runnable) string {
	name := fmt.Sprintf("%T", r)
	v := reflect.ValueOf(r)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() == reflect.Struct {
		if field := v.FieldByName("Name"); field.IsValid() && field.Kind() == reflect.String && field.String() != "" {
			name += " " + field.String()
		}
	}
	return name
}
