package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/regent-project/regent/pkg/election/perterm"
)

// greeted is the label whose value is greeted.
const greeted = "example.com/greeted"

// setUp is called once for each term.
func setUp(m *perterm.Manager) error { return (&greeter{m.GetClient()}).SetupWithManager(m) }

// greeter knows nothing of terms.
type greeter struct{ client.Client }

// SetupWithManager adds the greeter to a manager.
func (g *greeter) SetupWithManager(m ctrl.Manager) error {
	named := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetLabels()[greeted] != "" })
	return ctrl.NewControllerManagedBy(m).Named("greeter").For(&corev1.ConfigMap{}).WithEventFilter(named).Complete(g)
}

// Reconcile implements reconcile.Reconciler.
func (g *greeter) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := &corev1.ConfigMap{}
	if err := g.Get(ctx, req.NamespacedName, obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	greeting := "hello " + obj.Labels[greeted]
	if obj.Data["greeting"] == greeting {
		return ctrl.Result{}, nil
	}
	obj = obj.DeepCopy()
	if obj.Data == nil {
		obj.Data = map[string]string{}
	}
	obj.Data["greeting"] = greeting
	return ctrl.Result{}, g.Update(ctx, obj)
}
