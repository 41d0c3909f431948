package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	shopv1 "github.com/regent-project/regent/examples/widgets/api/v1"
)

func partName(widget *shopv1.Widget, n int32) string { return fmt.Sprintf("%s-%d", widget.Name, n) }

func entryName(widget *shopv1.Widget) string { return "widget." + widget.Namespace + "." + widget.Name }

// partOf returns a part, which goes with its Widget.
func (r *WidgetReconciler) partOf(widget *shopv1.Widget, n int32) (*applycorev1.ConfigMapApplyConfiguration, error) {
	kind, err := apiutil.GVKForObject(widget, r.Scheme)
	if err != nil {
		return nil, err
	}
	reference := applymetav1.OwnerReference().WithAPIVersion(kind.GroupVersion().String()).WithKind(kind.Kind).
		WithName(widget.Name).WithUID(widget.UID).WithController(true).WithBlockOwnerDeletion(true)
	return applycorev1.ConfigMap(partName(widget, n), widget.Namespace).WithLabels(map[string]string{widgetLabel: widget.Name}).
		WithOwnerReferences(reference).WithData(map[string]string{"color": widget.Spec.Color}), nil
}

// entryOf returns the entry in the catalogue.
func (r *WidgetReconciler) entryOf(widget *shopv1.Widget) *applycorev1.ConfigMapApplyConfiguration {
	return applycorev1.ConfigMap(entryName(widget), r.Catalogue).WithData(map[string]string{"color": widget.Spec.Color})
}

// apply writes by server-side apply: no resourceVersion stands in the way of a leader whose term is over.
func (r *WidgetReconciler) apply(ctx context.Context, object *applycorev1.ConfigMapApplyConfiguration) error {
	if err := r.Apply(ctx, object, owner, client.ForceOwnership); err != nil {
		return err
	}
	log.FromContext(ctx).V(1).Info("Applied", "object", *object.Name)
	return nil
}

// tell writes the status, if it has changed, and an Event.
func (r *WidgetReconciler) tell(ctx context.Context, widget *shopv1.Widget, parts int32) error {
	old := widget.Status.DeepCopy()
	widget.Status.ObservedGeneration, widget.Status.Replicas = widget.Generation, parts
	widget.Status.Selector = widgetLabel + "=" + widget.Name
	meta.SetStatusCondition(&widget.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Made", Message: fmt.Sprintf("%d parts are %s", parts, widget.Spec.Color),
		ObservedGeneration: widget.Generation,
	})
	if equality.Semantic.DeepEqual(old, &widget.Status) {
		return nil
	}
	if err := r.Status().Update(ctx, widget, owner); err != nil {
		return err
	}
	r.Recorder.Eventf(widget, nil, corev1.EventTypeNormal, "Made", "Make", "%d parts are %s", parts, widget.Spec.Color)
	log.FromContext(ctx).Info("Made", "parts", parts, "generation", widget.Generation)
	return nil
}

// SetupWithManager adds the controller to a manager.
func (r *WidgetReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&shopv1.Widget{}).Owns(&corev1.ConfigMap{}).Named("widget").Complete(r)
}
