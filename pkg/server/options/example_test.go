package options_test

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/bootstrap"
	"github.com/regent-project/regent/pkg/controllers/catalog"
	"github.com/regent-project/regent/pkg/controllers/loop"
	"github.com/regent-project/regent/pkg/server"
	"github.com/regent-project/regent/pkg/server/options"
)

// A server with a controller of one's own beside the catalog's. It leads and loses the lease as they do.
func Example() {
	greeter := controllers.Descriptor{
		Name:  "greeter",
		Needs: []string{bootstrap.Name},
		// Called afresh for every term. It starts nothing: the loop's Run does, and joins it.
		New: func(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
			namespaces := deps.Informers.Namespaces // warm already, on standbys too
			l := loop.New(deps.Range, "greeter", 2, func(ctx context.Context, key clusters.Key) error {
				if ns, ok := namespaces.Get(key); ok {
					klog.FromContext(ctx).Info("Hello", "cluster", key.Cluster, "namespace", ns.Name)
				}
				return nil // an error: tried again later
			})
			loop.Watch(l, namespaces, func(ns *corev1.Namespace) []clusters.Key { return []clusters.Key{clusters.KeyOf(ns)} })
			return l, nil
		},
	}

	run := func(ctx context.Context) error {
		ours, err := catalog.Registry()
		if err != nil {
			return err
		}
		registry, err := ours.With(greeter)
		if err != nil {
			return err // names every faulty entry
		}
		opts := options.New() // the flags of `regent start`: opts.Flags() to parse them
		opts.Election.Enabled = true
		if err := opts.Validate(); err != nil {
			return err
		}
		cfg, err := opts.Config(registry)
		if err != nil {
			return err
		}
		s, err := server.New(ctx, cfg)
		if err != nil {
			return err
		}
		return s.Run(ctx) // returns when everything has ended
	}
	_ = run // with a context that ends at SIGTERM
}
