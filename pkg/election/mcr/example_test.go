package mcr_test

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/regent-project/regent/pkg/election/leader"
	"github.com/regent-project/regent/pkg/election/mcr"
)

// Three replicas of a Deployment, each of which works in a third of all clusters. When one dies, the other two have its
// clusters, half of them each.
func Example() {
	run := func(ctx context.Context, provider multicluster.Provider) error { // it says which clusters there are
		config, err := ctrl.GetConfig()
		if err != nil {
			return err
		}
		coordinator, err := mcr.New(config, leader.Config{
			Namespace: "default", Name: "example", SecretName: "example-probe",
			SucceedUnfenced: true, // a replica that the probe says is dead is succeeded at once
		}, mcr.Options{Warm: []client.Object{&corev1.ConfigMap{}}})
		if err != nil {
			return err
		}
		mgr, err := mcmanager.New(config, provider, manager.Options{}, mcmanager.WithCoordinator(coordinator))
		if err != nil {
			return err
		}
		err = mcbuilder.ControllerManagedBy(mgr).For(&corev1.ConfigMap{}).
			Complete(mcreconcile.Func(func(context.Context, mcreconcile.Request) (ctrl.Result, error) {
				return ctrl.Result{}, nil // ctx ends with the term of the cluster's range
			}))
		if err != nil {
			return err
		}
		return mgr.Start(ctx) // it returns when what this replica led is released
	}
	_ = run
}
