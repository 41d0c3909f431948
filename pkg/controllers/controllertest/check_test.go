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
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/loop"
	"github.com/regent-project/regent/pkg/election/fence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// runFunc is a controller.
type runFunc func(ctx context.Context) error

func (f runFunc) Run(ctx context.Context) error { return f(ctx) }

func newDeps(t *testing.T) controllers.Deps {
	return controllers.Deps{Informers: controllers.Informers{
		Namespaces: Informer(t, NewSource(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "default", Annotations: map[string]string{"kcp.io/cluster": "root"}}}), nil),
		Metadata: map[schema.GroupVersionResource]clusters.Cache[*metav1.PartialObjectMetadata]{
			{Version: "v1", Resource: "configmaps"}: Informer(t, NewSource[*metav1.PartialObjectMetadata](), nil),
		},
	}}
}

func TestCheckPassesAControllerMadeOfALoop(t *testing.T) {
	Check(t, controllers.Descriptor{
		Name: "sound",
		New: func(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
			l := loop.New(clusters.Range{}, "sound", 2, func(context.Context, clusters.Key) error { return nil })
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
	var server Server
	remove := func(ctx context.Context, clients controllers.Clients) {
		err := clients.Kube.CoreV1().ConfigMaps("n").Delete(clusters.With(context.WithoutCancel(ctx), "root"), "x", ofUID("u"))
		if !errors.Is(err, ErrRefused) {
			t.Errorf("a write came to %v", err)
		}
	}
	untokened := server.Clients(t, fence.Token{})
	var kept []controllers.Clients
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
		"writes without the token": {"the first term: faulty made writes that do not carry its term's token", func(context.Context, controllers.Deps, func(func())) (controllers.Controller, error) {
			return runFunc(func(ctx context.Context) error { remove(ctx, untokened); <-ctx.Done(); return nil }), nil
		}},
		"writes with the last term's token": {"the second term: faulty made writes that do not carry its term's token", func(_ context.Context, deps controllers.Deps, _ func(func())) (controllers.Controller, error) {
			kept = append(kept, deps.Clients)
			return runFunc(func(ctx context.Context) error { remove(ctx, kept[0]); <-ctx.Done(); return nil }), nil
		}},
		"writes when constructed": {"the first term: faulty made writes that do not carry its term's token", func(ctx context.Context, _ controllers.Deps, _ func(func())) (controllers.Controller, error) {
			remove(ctx, untokened)
			return runFunc(func(ctx context.Context) error { <-ctx.Done(); return nil }), nil
		}},
		"does not say what a write was decided on": {"DELETE /clusters/root/api/v1/namespaces/n/configmaps/x has no precondition", func(_ context.Context, deps controllers.Deps, _ func(func())) (controllers.Controller, error) {
			return runFunc(func(ctx context.Context) error {
				if err := deps.Clients.Kube.CoreV1().ConfigMaps("n").Delete(clusters.With(context.WithoutCancel(ctx), "root"), "x", metav1.DeleteOptions{}); !errors.Is(err, ErrRefused) {
					t.Errorf("a write came to %v", err)
				}
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
				}, deps, &server)
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

func TestCheckPassesAControllerThatWritesWithItsClients(t *testing.T) {
	var server Server
	untokened := server.Clients(t, fence.Token{})
	descriptor := controllers.Descriptor{Name: "sound", New: func(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
		return runFunc(func(ctx context.Context) error {
			in := clusters.With(context.WithoutCancel(ctx), "root")
			for _, err := range writeWithAll(in, deps.Clients) {
				if !errors.Is(err, ErrRefused) {
					t.Errorf("a write came to %v", err)
				}
			}
			// A read needs no token.
			if _, err := untokened.Kube.CoreV1().ConfigMaps("n").Get(in, "x", metav1.GetOptions{}); !errors.Is(err, ErrRefused) {
				t.Errorf("a read came to %v", err)
			}
			<-ctx.Done()
			return nil
		}), nil
	}}
	const terms, clients = 3, 5
	for _, scope := range []controllers.Scope{controllers.LeaderOnly, controllers.EveryReplica} {
		descriptor.Scope, server.writes = scope, 0
		server.Check(t, descriptor, newDeps)
		if server.writes != terms*clients {
			t.Errorf("%s: the server saw %d writes, want %d", scope, server.writes, terms*clients)
		}
	}
}

func ofUID(uid types.UID) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
}

// writeWithAll makes one write with each client.
func writeWithAll(ctx context.Context, c controllers.Clients) (errs []error) {
	configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
	meta := metav1.ObjectMeta{Name: "x"}
	_, err := c.Workspaces.Create(ctx, &tenancyv1alpha1.Workspace{ObjectMeta: meta}, metav1.CreateOptions{})
	errs = append(errs, err)
	_, err = c.LogicalClusters.Create(ctx, &corev1alpha1.LogicalCluster{ObjectMeta: meta}, metav1.CreateOptions{})
	return append(
		errs, err,
		c.Kube.CoreV1().ConfigMaps("n").Delete(ctx, "x", ofUID("u")),
		c.Dynamic.Resource(configMaps).Namespace("n").Delete(ctx, "x", ofUID("u")),
		c.Metadata.Resource(configMaps).Namespace("n").Delete(ctx, "x", ofUID("u")),
	)
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
