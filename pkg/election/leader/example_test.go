package leader_test

import (
	"context"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/leader"
	"github.com/regent-project/regent/pkg/election/ranges"
)

// A program that leads in any Kubernetes cluster. Its Pod gives POD_IP from status.podIP. The package says which rights
// its account needs. After a crash standbys wait for the lease to expire, because nobody refuses what a leader that is
// not quite dead still writes.
func Example() {
	run := func(ctx context.Context) error {
		config, err := rest.InClusterConfig()
		if err != nil {
			return err
		}
		l, err := leader.New(config, leader.Config{Namespace: "default", Name: "example", SecretName: "example-probe"})
		if err != nil {
			return err
		}
		return l.Run(ctx, func(ctx context.Context, term election.Term) error {
			klog.FromContext(ctx).Info("Leading", "epoch", term.Epoch())
			<-ctx.Done() // work until the term ends, and stop everything
			return nil
		})
	}
	_ = run
}

// An API server on k8s.io/apiserver: the term begins when it serves, and ends while it still answers.
func ExampleLeader_Start() {
	type hooks interface { // of a GenericAPIServer
		AddPreShutdownHook(name string, hook func() error) error
	}
	install := func(server hooks, loopback *rest.Config, lead election.LeadFunc) error {
		l, err := leader.New(loopback, leader.Config{Namespace: "kube-system", Name: "example", SecretName: "example-probe"})
		if err != nil {
			return err
		}
		// server.AddPostStartHookOrDie("lead", func(hook genericapiserver.PostStartHookContext) error { return
		// l.Start(hook, lead) })
		_ = l.Start
		return server.AddPreShutdownHook("lead", l.Stop)
	}
	_ = install
}

// A program all of whose replicas work, each for its share of all keys. A range of keys has one leader at a time.
func ExampleNewGroup() {
	run := func(ctx context.Context, config *rest.Config, reconcile func(ctx context.Context, has func(key string) bool) error) error {
		g, err := leader.NewGroup(config, leader.Config{Namespace: "default", Name: "example", SecretName: "example-probe"}, 16)
		if err != nil {
			return err
		}
		return g.Run(ctx, func(ctx context.Context, of ranges.Range, term election.Term) error {
			klog.FromContext(ctx).Info("Leading", "range", of, "epoch", term.Epoch())
			return reconcile(ctx, of.Has) // until ctx ends; it returns when everything has stopped
		})
	}
	_ = run
}

// A program that bears that two leaders work for a moment, and wants a crash to cost milliseconds without a fence.
func ExampleNew_succeedUnfenced() {
	run := func(ctx context.Context, config *rest.Config, lead election.LeadFunc) error {
		l, err := leader.New(config, leader.Config{
			Namespace: "default", Name: "example", SecretName: "example-probe",
			SucceedUnfenced: true,
			Adjust:          func(cfg *election.Config) { cfg.Priority = 1 },
			LeaseDuration:   15 * time.Second,
		})
		if err != nil {
			return err
		}
		return l.Run(ctx, lead)
	}
	_ = run
}
