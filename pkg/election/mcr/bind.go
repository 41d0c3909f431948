package mcr

import (
	"context"
	"fmt"
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/election/ranges"
)

// Bind returns a reconciler whose reconciles belong to the terms of the coordinator, and which else does what r does.
// Controllers with multicluster-runtime's Request need no call of it: their reconcilers are bound when the manager gets
// them.
func Bind[request mcreconcile.ClusterAware[request]](c *Coordinator, r reconcile.TypedReconciler[request]) reconcile.TypedReconciler[request] {
	return &binding[request]{c, r}
}

type binding[request mcreconcile.ClusterAware[request]] struct {
	by   *Coordinator
	next reconcile.TypedReconciler[request]
}

// Reconcile implements reconcile.TypedReconciler. What belongs to a cluster that another process has is dropped: that
// process gets all objects of the cluster.
func (b *binding[request]) Reconcile(ctx context.Context, req request) (reconcile.Result, error) {
	name := req.Cluster()
	if name == mcmanager.LocalCluster {
		return b.next.Reconcile(ctx, req)
	}
	t := b.by.enter(name)
	if t == nil {
		return reconcile.Result{}, nil
	}
	defer t.reconciles.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })() //nolint:contextcheck // the term's
	if t.token != (fence.Token{}) {
		ctx = fence.With(ctx, t.token)
	}
	result, err := b.next.Reconcile(ctx, req)
	if fence.IsFenced(err) {
		election.Fail(t.ctx, fmt.Errorf("%w: a write in cluster %q: %w", election.Fenced, name, err)) //nolint:contextcheck // the term's
	}
	return result, err
}

// String is the name of what is bound, as controller-runtime's logs have it.
func (b *binding[request]) String() string { return fmt.Sprint(b.next) }

// isOf reports whether a reconciler is bound by that coordinator.
func (b *binding[request]) isOf(c *Coordinator) bool { return b.by == c }

// enter returns the term in which a reconcile of that cluster begins, which then waits for its reconciles.Done; nil:
// this process does not lead the range of the cluster.
func (c *Coordinator) enter(name multicluster.ClusterName) *term {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == 0 {
		return nil
	}
	t := c.terms[ranges.Of(string(name), c.of)]
	if t == nil || t.ctx.Err() != nil {
		return nil
	}
	t.reconciles.Add(1)
	return t
}

// bind binds the reconciler of a controller. controller-runtime has no way to change that of a controller which is
// made, so bind looks for the field where v0.24 and v0.25 have it. It returns an error if aware is a controller whose
// reconciler it cannot bind, and that is not bound either.
func (c *Coordinator) bind(aware multicluster.Aware) error {
	if _, reconciles := reflect.TypeOf(aware).MethodByName("Reconcile"); !reconciles {
		return nil // it has no queue, and has the context of Engage
	}
	inner, found := innermost(reflect.ValueOf(aware))
	if found {
		do := inner.FieldByName("Do")
		if of, is := do.Interface().(interface{ isOf(c *Coordinator) bool }); is && of.isOf(c) {
			return nil
		}
		if field, is := do.Addr().Interface().(*reconcile.TypedReconciler[mcreconcile.Request]); is {
			*field = Bind(c, *field)
			return nil
		}
	}
	return fmt.Errorf("mcr: the reconciles of controller %s cannot be bound to the terms of the coordinator: give it a reconciler that mcr.Bind has returned", nameOf(aware))
}

// innermost returns controller-runtime's controller, which is in multicluster-runtime's, and has the reconciler in its
// field Do.
func innermost(controller reflect.Value) (inner reflect.Value, ok bool) {
	for range deepest {
		for controller.Kind() == reflect.Pointer || controller.Kind() == reflect.Interface {
			controller = controller.Elem()
		}
		if controller.Kind() != reflect.Struct {
			break
		}
		if do := controller.FieldByName("Do"); do.IsValid() && do.CanSet() && do.Kind() == reflect.Interface && !do.IsNil() {
			return controller, true
		}
		controller = controller.FieldByName("TypedController")
	}
	return reflect.Value{}, false
}

// deepest is how many controllers are looked for in each other.
const deepest = 4

// nameOf returns what people call something that is aware: the name of a controller, and its type.
func nameOf(aware multicluster.Aware) string {
	name := fmt.Sprintf("%T", aware)
	if inner, found := innermost(reflect.ValueOf(aware)); found {
		if field := inner.FieldByName("Name"); field.Kind() == reflect.String {
			return field.String() + " (" + name + ")"
		}
	}
	return name
}
