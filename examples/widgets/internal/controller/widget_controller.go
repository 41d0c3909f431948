// Package controller makes of each Widget what its spec says.
package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	shopv1 "github.com/regent-project/regent/examples/widgets/api/v1"
)

// WidgetReconciler keeps a ConfigMap for each part of a Widget, and an entry in a catalogue that is in another
// namespace.
type WidgetReconciler struct {
	client.Client
	Scheme   *runtime.Scheme
	Recorder events.EventRecorder
	// Catalogue is the namespace with the entries. Owners cannot be in another namespace than what they own: so the
	// entries go with a finalizer.
	Catalogue string
}

const (
	finalizer   = "shop.example.com/catalogue"
	widgetLabel = "shop.example.com/widget"
	owner       = client.FieldOwner("widgets")
)

// +kubebuilder:rbac:groups=shop.example.com,resources=widgets,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=shop.example.com,resources=widgets/status;widgets/finalizers,verbs=update;patch
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update

// Reconcile implements reconcile.Reconciler.
func (r *WidgetReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	widget := &shopv1.Widget{}
	if err := r.Get(ctx, req.NamespacedName, widget); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !widget.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, unlessChanged(r.remove(ctx, widget))
	}
	return ctrl.Result{}, unlessChanged(r.make(ctx, widget))
}

// unlessChanged returns nil if an object was changed or deleted meanwhile: the cache will show that, and its event
// queues the Widget again.
func unlessChanged(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// make makes the parts, and says so in the status.
func (r *WidgetReconciler) make(ctx context.Context, widget *shopv1.Widget) error {
	if controllerutil.AddFinalizer(widget, finalizer) {
		if err := r.Update(ctx, widget, owner); err != nil {
			return err
		}
	}
	if err := r.apply(ctx, r.entryOf(widget)); err != nil {
		return fmt.Errorf("write the entry in the catalogue: %w", err)
	}
	wanted := ptr.Deref(widget.Spec.Replicas, 1)
	for n := range wanted {
		part, err := r.partOf(widget, n)
		if err == nil {
			err = r.apply(ctx, part)
		}
		if err != nil {
			return fmt.Errorf("make part %d: %w", n, err)
		}
	}
	if err := r.removeParts(ctx, widget, wanted); err != nil {
		return fmt.Errorf("remove what is too much: %w", err)
	}
	return r.tell(ctx, widget, wanted)
}

// removeParts deletes the parts from a number on.
func (r *WidgetReconciler) removeParts(ctx context.Context, widget *shopv1.Widget, from int32) error {
	var parts corev1.ConfigMapList
	if err := r.List(ctx, &parts, client.InNamespace(widget.Namespace), client.MatchingLabels{widgetLabel: widget.Name}); err != nil {
		return err
	}
	keep := map[string]bool{}
	for n := range from {
		keep[partName(widget, n)] = true
	}
	for n := range parts.Items {
		if part := &parts.Items[n]; !keep[part.Name] {
			if err := client.IgnoreNotFound(r.Delete(ctx, part)); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove lets a deleted Widget go, once its entry in the catalogue has gone. Its parts are the garbage collector's.
func (r *WidgetReconciler) remove(ctx context.Context, widget *shopv1.Widget) error {
	if !controllerutil.ContainsFinalizer(widget, finalizer) {
		return nil
	}
	entry := &corev1.ConfigMap{}
	entry.Namespace, entry.Name = r.Catalogue, entryName(widget)
	if err := client.IgnoreNotFound(r.Delete(ctx, entry)); err != nil {
		return fmt.Errorf("delete the entry in the catalogue: %w", err)
	}
	controllerutil.RemoveFinalizer(widget, finalizer)
	if err := r.Update(ctx, widget, owner); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Removed")
	return nil
}
