package control_test

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/control/loop"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// A controller with a work queue, on an informer of client-go, in the terms of an elector.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})

	// Informers live as long as the process: a standby's caches are warm.
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods()
	informer := pods.Informer() // before Start, which starts those that were asked for
	informing, stopInforming := context.WithCancel(context.Background())
	factory.Start(informing.Done())
	defer factory.Shutdown() // it waits for the informers
	defer stopInforming()    // so they end before it: Run may return while ctx lives, with election.ErrExit

	greeter := control.Descriptor[election.Term]{
		Name: "greeter",
		// Called once per term. It starts nothing: the loop's Run does, and joins it.
		New: func(_ context.Context, term election.Term) (control.Controller, error) {
			l := loop.New("greeter", 2, func(_ context.Context, key cache.ObjectName) error {
				pod, err := pods.Lister().Pods(key.Namespace).Get(key.Name)
				if err != nil {
					return err // it is tried again later
				}
				fmt.Printf("hello %s, in term %d\n", pod.Name, term.Epoch())
				stop()
				return nil
			})
			loop.Watch(l, informer, func(pod *corev1.Pod) []cache.ObjectName { return []cache.ObjectName{cache.MetaObjectToName(pod)} })
			return l, nil
		},
	}

	cfg := election.DefaultConfig()
	cfg.Namespace, cfg.Name = "default", "example"
	// in a program: client.CoordinationV1().Leases(cfg.Namespace)
	cfg.Client = electiontest.NewStore(cfg.Name).Client()
	elector, err := election.New(cfg)
	if err != nil {
		panic(err)
	}
	if err := elector.Run(ctx, supervisor.Lead(greeter)); !errors.Is(err, context.Canceled) {
		panic(err)
	}
	// Output: hello a, in term 1
}

// A controller that needs no queue is any type with a method Run, or a function.
func ExampleController() {
	ctx, cancel := context.WithCancel(context.Background())
	ticker := control.Descriptor[election.Term]{Name: "ticker", New: func(context.Context, election.Term) (control.Controller, error) {
		return control.Func(func(ctx context.Context) error {
			fmt.Println("works")
			cancel()
			<-ctx.Done()
			return nil // nothing of it runs any more
		}), nil
	}}
	err := supervisor.Lead(ticker)(ctx, election.Term{})
	fmt.Println("error:", err)
	// Output:
	// works
	// error: <nil>
}
