package loop_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/regent-project/regent/pkg/election/control/loop"
)

// A Service queues the keys of what its selector named and names; what reconciles it is tried again after an error.
func ExampleWatch() {
	construct := func(services cache.SharedIndexInformer) *loop.Loop[string] {
		l := loop.New("teams", 4, func(ctx context.Context, team string) error { return nil })
		loop.Watch(l, services, func(s *corev1.Service) []string {
			if team, ok := s.Spec.Selector["team"]; ok {
				return []string{team}
			}
			return nil
		})
		return l
	}
	_ = construct
}

// Keys that do not come from an informer.
func ExampleLoop_On() {
	ctx, stop := context.WithCancel(context.Background())
	l := loop.New("files", 1, func(_ context.Context, name string) error {
		fmt.Println("reconciled", name)
		stop()
		return nil
	})
	l.On(loop.Source[string]{
		Name:     "files",
		Register: func() (remove func()) { return func() { fmt.Println("removed") } },
		Pages:    func(yield func(int, []string) bool) { yield(1, []string{"a"}) },
	})
	fmt.Println(l.Run(ctx))
	// Output:
	// reconciled a
	// removed
	// <nil>
}
