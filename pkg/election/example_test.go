package election_test

import (
	"context"
	"net"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election"
)

// This is the election alone, in any program, against any Kubernetes API server.
func Example() {
	run := func(ctx context.Context, config *rest.Config) error {
		// This client is for the election only: it has no rate limit, and connections of its own.
		config = rest.CopyConfig(config)
		config.QPS = -1
		// else client-go shares connections between equal configurations
		config.Dial = (&net.Dialer{}).DialContext
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		cfg := election.DefaultConfig()
		cfg.Namespace, cfg.Name = "default", "example"
		cfg.Client = client.CoordinationV1().Leases(cfg.Namespace)
		elector, err := election.New(cfg)
		if err != nil {
			return err
		}
		// Calls the function once per term, again and again, until ctx ends.
		return elector.Run(ctx, func(ctx context.Context, term election.Term) error {
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					klog.FromContext(ctx).Info("No longer leading", "cause", context.Cause(ctx))
					return nil // everything of the term has ended
				case <-tick.C:
					klog.FromContext(ctx).Info("Working", "epoch", term.Epoch())
				}
			}
		})
	}
	_ = run
}
