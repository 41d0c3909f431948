package control_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

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
	"github.com/regent-project/regent/pkg/election/ranges"
)

// All replicas work, each for its share of the namespaces: a controller runs once for each range that a process leads.
func Example_ranges() {
	ctx, stop := context.WithCancel(context.Background())
	client := fake.NewClientset()
	for _, namespace := range []string{"blue", "green", "red", "white"} {
		_ = client.Tracker().Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a"}})
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().Pods().Informer()
	informing, stopInforming := context.WithCancel(context.Background())
	factory.Start(informing.Done())
	defer factory.Shutdown()
	defer stopInforming()

	var mu sync.Mutex
	var greeted []string
	greeter := control.Descriptor[supervisor.RangeTerm]{
		Name: "greeter",
		New: func(_ context.Context, term supervisor.RangeTerm) (control.Controller, error) {
			l := loop.New("greeter", 2, func(_ context.Context, key cache.ObjectName) error {
				mu.Lock()
				defer mu.Unlock()
				if greeted = append(greeted, fmt.Sprintf("hello %s, in range %v", key, term.Range)); len(greeted) == 4 {
					stop()
				}
				return nil
			})
			loop.Watch(l, informer, func(pod *corev1.Pod) []cache.ObjectName {
				if !term.Range.Has(pod.Namespace) { // another leader's
					return nil
				}
				return []cache.ObjectName{cache.MetaObjectToName(pod)}
			})
			return l, nil
		},
	}

	cfg := election.DefaultConfig()
	cfg.Namespace, cfg.Name = "default", "example"
	cfg.RetryPeriod = 100 * time.Millisecond // the end takes so long
	cfg.Client = electiontest.NewStore(cfg.Name).Client()
	group, err := ranges.New(ranges.Config{Election: cfg, Ranges: 2})
	if err != nil {
		panic(err)
	}
	if err := group.Run(ctx, supervisor.LeadRanges(greeter)); !errors.Is(err, context.Canceled) {
		panic(err)
	}
	slices.Sort(greeted)
	for _, line := range greeted {
		fmt.Println(line)
	}
	// Output:
	// hello blue/a, in range 1 of 2
	// hello green/a, in range 0 of 2
	// hello red/a, in range 1 of 2
	// hello white/a, in range 0 of 2
}
