// Package kcpcore describes core.kcp.io/v1alpha1: logical clusters, and shards.
package kcpcore

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/apis/resource"
)

var apiVersion = regexp.MustCompile(`^([^/]+/)?[^/]+$`)

// Resources are the resources of the group.
var Resources = []resource.Described{logicalClusters, shards}

type logicalCluster = *corev1alpha1.LogicalCluster

var logicalClusters = resource.Definition[logicalCluster]{
	GVR:        corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"),
	Categories: []string{"kcp"},
	List:       &corev1alpha1.LogicalClusterList{},
	// kcp's types have no protobuf encoding.
	Stored: resource.Stored[logicalCluster]{JSONOnly: true},
	Name: func(name string, _ bool) []string {
		if name != corev1alpha1.LogicalClusterName {
			return []string{fmt.Sprintf("a logical cluster has one LogicalCluster, whose name is %q", corev1alpha1.LogicalClusterName)}
		}
		return nil
	},
	Unconditional: true,
	Reset:         fieldpath.NewSet(fieldpath.MakePathOrDie("status")),
	Default:       func(l logicalCluster) { SetPhaseDefault(&l.Status.Phase) },
	PrepareCreate: func(l logicalCluster) {
		l.Generation = 1
		// Admission decides about the first status: nobody else is asked.
		if !clusters.HasBuiltIn(l) || l.Status.Phase != corev1alpha1.LogicalClusterPhaseReady {
			l.Status = corev1alpha1.LogicalClusterStatus{Phase: corev1alpha1.LogicalClusterPhaseScheduling}
		}
	},
	PrepareUpdate: func(l, old logicalCluster) {
		l.Status = old.Status
		if !equality.Semantic.DeepEqual(l.Spec, old.Spec) {
			l.Generation = old.Generation + 1
		}
	},
	Validate:       validateLogicalCluster,
	ValidateUpdate: validateLogicalClusterUpdate,
	Columns: []resource.Column[logicalCluster]{
		resource.Name[logicalCluster](),
		{Name: "Phase", Description: "The current phase (e.g. Scheduling, Initializing, Ready, Deleting)", Cell: func(l logicalCluster) any { return string(l.Status.Phase) }},
		{Name: "URL", Description: "URL to access the logical cluster", Cell: func(l logicalCluster) any { return l.Status.URL }},
		resource.Age[logicalCluster](),
	},
	Subresources: map[string]resource.Subresource[logicalCluster]{"status": logicalClusterStatus},
}

var logicalClusterStatus = resource.Subresource[logicalCluster]{
	Keep:  func(l, old logicalCluster) { l.Spec = old.Spec },
	Reset: fieldpath.NewSet(fieldpath.MakePathOrDie("spec")),
}

func validateLogicalCluster(l logicalCluster) field.ErrorList {
	spec, status := field.NewPath("spec"), field.NewPath("status")
	errs := validateOwner(l.Spec.Owner, spec.Child("owner"))
	for _, key := range clusters.QuotaAnnotations {
		if value, ok := l.Annotations[key]; ok {
			if _, err := clusters.ParseQuota(value); err != nil {
				errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations").Key(key), value, err.Error()))
			}
		}
	}
	errs = append(errs, ValidateNames(l.Spec.Initializers, spec.Child("initializers"))...)
	errs = append(errs, ValidateNames(l.Spec.Terminators, spec.Child("terminators"))...)
	errs = append(errs, ValidatePhase(l.Status.Phase, status.Child("phase"))...)
	errs = append(errs, ValidateConditions(l.Status.Conditions, status.Child("conditions"))...)
	errs = append(errs, ValidateNames(l.Status.Initializers, status.Child("initializers"))...)
	return append(errs, ValidateNames(l.Status.Terminators, status.Child("terminators"))...)
}

// validateLogicalClusterUpdate refuses changes of the owner, which decides whether the cluster may live, and of the
// path, with which the paths of all clusters below it begin. A cluster that has lost its Workspace may get a new one of
// the same name. It also refuses changes that would do nothing.
func validateLogicalClusterUpdate(l, old logicalCluster) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	if !equality.Semantic.DeepEqual(l.Spec.Owner, old.Spec.Owner) && !isAdopted(l, old) {
		errs = append(errs, field.Forbidden(spec.Child("owner"), "owner is immutable"))
	}
	if l.Spec.DirectlyDeletable != old.Spec.DirectlyDeletable {
		errs = append(errs, field.Forbidden(spec.Child("directlyDeletable"), "this server does not look at it: whoever may delete the LogicalCluster can delete it"))
	}
	if phase := old.Status.Phase; phase != corev1alpha1.LogicalClusterPhaseScheduling && !slices.Equal(l.Spec.Initializers, old.Spec.Initializers) {
		errs = append(errs, field.Forbidden(spec.Child("initializers"), fmt.Sprintf("too late: they were copied to the status when the phase Initializing began, and it is %s", phase)))
	}
	if phase := old.Status.Phase; phase == corev1alpha1.LogicalClusterPhaseDeleting && !slices.Equal(l.Spec.Terminators, old.Spec.Terminators) {
		errs = append(errs, field.Forbidden(spec.Child("terminators"), "too late: they were copied to the status when the deletion began"))
	}
	if path := old.Annotations[core.LogicalClusterPathAnnotationKey]; path != "" && l.Annotations[core.LogicalClusterPathAnnotationKey] != path {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations").Key(core.LogicalClusterPathAnnotationKey), "the path is immutable"))
	}
	return errs
}

// isAdopted reports whether an orphan gets another owner that differs by its uid only.
func isAdopted(l, old logicalCluster) bool {
	if l.Spec.Owner == nil || old.Spec.Owner == nil || !conditions.IsTrue(old, clusters.ConditionOrphaned) {
		return false
	}
	now := *l.Spec.Owner
	now.UID = old.Spec.Owner.UID
	return now == *old.Spec.Owner
}

func validateOwner(o *corev1alpha1.LogicalClusterOwner, path *field.Path) field.ErrorList {
	if o == nil {
		return nil
	}
	errs := Require(o.Resource, path.Child("resource"))
	errs = append(errs, Require(o.Name, path.Child("name"))...)
	errs = append(errs, Require(o.Cluster, path.Child("cluster"))...)
	errs = append(errs, Require(string(o.UID), path.Child("uid"))...)
	if !apiVersion.MatchString(o.APIVersion) {
		errs = append(errs, field.Invalid(path.Child("apiVersion"), o.APIVersion, "must match "+apiVersion.String()))
	}
	return errs
}
