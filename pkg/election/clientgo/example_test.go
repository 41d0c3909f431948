package clientgo_test

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/regent-project/regent/pkg/election/clientgo"
)

// What is new beside client-go: the name of the package, the loop, and that the process need not end in
// OnStoppedLeading.
func Example() {
	lead := func(ctx context.Context, client kubernetes.Interface, identity string) error {
		elector, err := clientgo.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: "default", Name: "example"},
				Client:     client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
			},
			LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				// return when everything has stopped
				OnStartedLeading: func(ctx context.Context) { <-ctx.Done() },
				OnStoppedLeading: func() {},
			},
		})
		if err != nil {
			return err
		}
		for ctx.Err() == nil {
			elector.Run(ctx)
		}
		return context.Cause(ctx)
	}
	_ = lead
}
