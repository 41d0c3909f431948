package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/apis/resource"
)

var namespaces = resource.Definition[*corev1.Namespace]{
	GVR:           corev1.SchemeGroupVersion.WithResource("namespaces"),
	ShortNames:    []string{"ns"},
	List:          &corev1.NamespaceList{},
	Name:          validation.ValidateNamespaceName,
	Unconditional: true,
	Reset:         fieldpath.NewSet(fieldpath.MakePathOrDie("status")),
	Default:       setNamespaceDefaults,
	BuiltIn:       clusters.BuiltIn.Namespaces,
	PrepareCreate: func(ns *corev1.Namespace) {
		ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
		setNamespaceDefaults(ns)
		for _, f := range ns.Spec.Finalizers {
			if f == corev1.FinalizerKubernetes {
				return
			}
		}
		ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
	},
	PrepareUpdate: func(ns, old *corev1.Namespace) {
		ns.Spec.Finalizers = old.Spec.Finalizers
		ns.Status = old.Status
		setNamespaceDefaults(ns)
	},
	Validate: func(ns *corev1.Namespace) field.ErrorList {
		return validateFinalizers(ns.Spec.Finalizers, field.NewPath("spec", "finalizers"))
	},
	Fields: func(ns *corev1.Namespace) fields.Set {
		return fields.Set{"status.phase": string(ns.Status.Phase)}
	},
	Columns: []resource.Column[*corev1.Namespace]{
		resource.Name[*corev1.Namespace](),
		{Name: "Status", Description: "The status of the namespace", Cell: func(ns *corev1.Namespace) any { return string(ns.Status.Phase) }},
		resource.Age[*corev1.Namespace](),
	},
	Subresources: map[string]resource.Subresource[*corev1.Namespace]{"status": namespaceStatus, "finalize": namespaceFinalize},
	Wrap:         newNamespaceStore,
}

// setNamespaceDefaults sets the phase, and restores the label with the namespace's name.
func setNamespaceDefaults(ns *corev1.Namespace) {
	if ns.Status.Phase == "" {
		ns.Status.Phase = corev1.NamespaceActive
	}
	if ns.Name == "" {
		return
	}
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
}

// namespaceStatus is the subresource status.
var namespaceStatus = resource.Subresource[*corev1.Namespace]{
	Keep:  func(ns, old *corev1.Namespace) { ns.Spec = old.Spec },
	Reset: fieldpath.NewSet(fieldpath.MakePathOrDie("spec")),
	Validate: func(ns, _ *corev1.Namespace) field.ErrorList {
		path := field.NewPath("status", "phase")
		if ns.DeletionTimestamp.IsZero() && ns.Status.Phase != corev1.NamespaceActive {
			return field.ErrorList{field.Invalid(path, ns.Status.Phase, "may only be 'Active' if `deletionTimestamp` is empty")}
		}
		if !ns.DeletionTimestamp.IsZero() && ns.Status.Phase != corev1.NamespaceTerminating {
			return field.ErrorList{field.Invalid(path, ns.Status.Phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")}
		}
		return nil
	},
}

// namespaceFinalize is the subresource finalize. It changes spec.finalizers. A terminating namespace goes when the last
// one is removed.
var namespaceFinalize = resource.Subresource[*corev1.Namespace]{
	Keep:  func(ns, old *corev1.Namespace) { ns.Status = old.Status },
	Reset: fieldpath.NewSet(fieldpath.MakePathOrDie("status")),
}

func validateFinalizers(finalizers []corev1.FinalizerName, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, finalizer := range finalizers {
		for _, msg := range utilvalidation.IsQualifiedName(string(finalizer)) {
			errs = append(errs, field.Invalid(path.Index(i), finalizer, msg))
		}
	}
	return errs
}
