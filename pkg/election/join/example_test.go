package join_test

import (
	"context"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/join"
)

// upstream stands for a controller that nobody will rewrite: it adds a handler for good, and its Run starts workers and
// does not wait.
type upstream struct{}

func newUpstream(_ kubernetes.Interface, pods cache.SharedIndexInformer) (*upstream, error) {
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) {}})
	return &upstream{}, err
}

func (*upstream) Run(ctx context.Context, workers int) {
	for range workers {
		go func() { <-ctx.Done() }()
	}
}

// The work of an elector's terms is a controller that does not join what it starts. The informer lives as long as the
// process.
func ExampleLead() {
	lead := func(elector *election.Elector, client kubernetes.Interface, pods cache.SharedIndexInformer) error {
		pods = join.Informer(pods)
		return elector.Run(context.Background(), join.Lead(join.Options{}, func(ctx context.Context, _ election.Term) error {
			c, err := newUpstream(client, pods)
			if err != nil {
				return err
			}
			c.Run(ctx, 2)
			<-ctx.Done()
			return nil
		}))
	}
	_ = lead
}

// A supervisor runs it: Controller has the method Run that a supervisor calls.
func ExampleController() {
	construct := func(client kubernetes.Interface, pods cache.SharedIndexInformer) join.Controller {
		return join.Controller(join.Starting(func(ctx context.Context) error {
			c, err := newUpstream(client, join.Informer(pods))
			if err != nil {
				return err
			}
			c.Run(ctx, 2)
			return nil
		}))
	}
	_ = construct
}

// A server constructs its controllers when it starts, and runs them in its first term.
func ExampleScope() {
	constructed := join.New(context.Background(), join.Options{Patience: time.Minute})
	constructed.Do(func(context.Context) { /* construct */ })
	lead := func(ctx context.Context, _ election.Term) error {
		defer constructed.End()
		constructed.Do(func(context.Context) { /* start the workers, with ctx */ })
		<-ctx.Done()
		return nil
	}
	_ = lead
}
