package perterm_test

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/regent-project/regent/pkg/election/leader"
	"github.com/regent-project/regent/pkg/election/perterm"
)

// greeter is a reconciler as any other.
type greeter struct{ client.Client }

func (g *greeter) Reconcile(context.Context, ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{}, nil
}

func Example() {
	run := func(ctx context.Context) error {
		config, err := ctrl.GetConfig()
		if err != nil {
			return err
		}
		process, err := ctrl.NewManager(config, ctrl.Options{}) // without LeaderElection
		if err != nil {
			return err
		}
		elector, err := leader.New(config, leader.Config{
			Namespace: "default", Name: "example", SecretName: "example-probe",
		})
		if err != nil {
			return err
		}
		err = perterm.Add(process, elector, perterm.Options{Warm: []client.Object{&corev1.ConfigMap{}}}, func(m *perterm.Manager) error {
			return ctrl.NewControllerManagedBy(m).For(&corev1.ConfigMap{}).Complete(&greeter{m.GetClient()})
		})
		if err != nil {
			return err
		}
		return process.Start(ctx)
	}
	_ = run
}

// A server that checks fencing tokens refuses what a leader writes after its term, and the first refusal ends the term.
// Such a leader is succeeded within milliseconds.
func ExampleAdd_fenced() {
	add := func(process ctrl.Manager, setUp func(m *perterm.Manager) error) error {
		elector, err := leader.New(process.GetConfig(), leader.Config{
			Namespace: "default", Name: "example", SecretName: "example-probe", Fenced: true,
		})
		if err != nil {
			return err
		}
		return perterm.Add(process, elector, perterm.Options{}, setUp)
	}
	_ = add
}
