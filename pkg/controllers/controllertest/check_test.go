package controllertest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/loop"
	"github.com/regent-project/regent/pkg/server/clusters"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// runFunc is a controller.
type runFunc func(ctx context.Context) error

func (f runFunc) Run(ctx context.Context) error { return f(ctx) }

func newDeps(t *testing.T) controllers.Deps {
	return controllers.Deps{Informers: controllers.Informers{
		Namespaces: Informer(t, NewSource(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "default", Annotations: map[string]string{"kcp.io/cluster": "root"}}}), nil),
		Metadata: map[schema.GroupVersionResource]*clusters.Informer[*metav1.PartialObjectMetadata]{
			{Version: "v1", Resource: "configmaps"}: Informer(t, NewSource[*metav1.PartialObjectMetadata](), nil),
		},
	}}
}

func TestCheckPassesAControllerMadeOfALoop(t *testing.T) {
	Check(t, controllers.Descriptor{
		Name: "sound",
		New: func(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
			l := loop.New("sound", 2, func(context.Context, clusters.Key) error { return nil })
			loop.Watch(l, deps.Informers.Namespaces, func(ns *corev1.Namespace) []clusters.Key { return []clusters.Key{clusters.KeyOf(ns)} })
			for _, inf := range deps.Informers.Metadata {
				loop.Watch(l, inf, func(o *metav1.PartialObjectMetadata) []clusters.Key { return []clusters.Key{clusters.KeyOf(o)} })
			}
			return l, nil
		},
	}, newDeps)
}

func TestCheckFindsEachBreachOfTheContract(t *testing.T) {
	ignore := func(_, _ *corev1.Namespace) {}
	for name, c := range map[string]struct {
		want  string
		newer func(ctx context.Context, deps controllers.Deps, undo func(func())) (controllers.Controller, error)
	}{
		"fails to construct": {"construct faulty: no", func(context.Context, controllers.Deps, func(func())) (controllers.Controller, error) {
			return nil, errors.New("no")
		}},
		"returns early": {"returned before its context ended", func(context.Context, controllers.Deps, func(func())) (controllers.Controller, error) {
			return runFunc(func(context.Context) error { return nil }), nil
		}},
		"returns another error": {"want nil or the context's error", func(context.Context, controllers.Deps, func(func())) (controllers.Controller, error) {
			return runFunc(func(ctx context.Context) error { <-ctx.Done(); return errors.New("late") }), nil
		}},
		"leaves a handler": {"left 1 event handlers", func(_ context.Context, deps controllers.Deps, undo func(func())) (controllers.Controller, error) {
			return runFunc(func(ctx context.Context) error {
				undo(deps.Informers.Namespaces.AddHandler(ignore))
				<-ctx.Done()
				return nil
			}), nil
		}},
		"registers when constructed": {"constructor of faulty added 1 event handlers", func(_ context.Context, deps controllers.Deps, undo func(func())) (controllers.Controller, error) {
			undo(deps.Informers.Namespaces.AddHandler(ignore))
			return runFunc(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }), nil
		}},
		"leaves a goroutine": {"faulty left goroutines", func(_ context.Context, _ controllers.Deps, undo func(func())) (controllers.Controller, error) {
			return runFunc(func(ctx context.Context) error {
				end := make(chan struct{})
				go func() { <-end }()
				undo(func() { close(end) })
				<-ctx.Done()
				return nil
			}), nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			deps := newDeps(t)
			var undos []func()
			rec := &recorder{ctx: t.Context()}
			done := make(chan struct{})
			go func() {
				defer close(done)
				check(rec, controllers.Descriptor{
					Name: "faulty",
					New: func(ctx context.Context, deps controllers.Deps) (controllers.Controller, error) {
						return c.newer(ctx, deps, func(f func()) { undos = append(undos, f) })
					},
				}, deps)
			}()
			<-done
			for _, undo := range undos {
				undo()
			}
			if !strings.Contains(rec.log.String(), c.want) {
				t.Errorf("Check said %q, want it to say %q", rec.log.String(), c.want)
			}
		})
	}
}

func TestCheckPassesAControllerThatStopsSlowly(t *testing.T) {
	Check(t, controllers.Descriptor{Name: "slow", New: func(context.Context, controllers.Deps) (controllers.Controller, error) {
		return runFunc(func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(settle)
			return fmt.Errorf("stopped: %w", ctx.Err())
		}), nil
	}}, newDeps)
}

// recorder is a test that writes down its failures.
type recorder struct {
	ctx context.Context
	log strings.Builder
}

func (r *recorder) Helper()                           {}
func (r *recorder) Context() context.Context          { return r.ctx }
func (r *recorder) Errorf(format string, args ...any) { fmt.Fprintf(&r.log, format+"\n", args...) }
func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}
