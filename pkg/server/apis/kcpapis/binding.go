package kcpapis

import (
	"regexp"
	"slices"

	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/apis/resource"
)

type binding = *apisv1alpha2.APIBinding

var bindings = resource.Definition[binding]{
	GVR:            apisv1alpha2.SchemeGroupVersion.WithResource("apibindings"),
	Categories:     []string{"kcp"},
	List:           &apisv1alpha2.APIBindingList{},
	Stored:         resource.Stored[binding]{JSONOnly: true},
	Name:           validName,
	Reset:          fieldpath.NewSet(fieldpath.MakePathOrDie("status")),
	PrepareCreate:  prepareBinding,
	PrepareUpdate:  keepBinding,
	Validate:       validateBinding,
	ValidateUpdate: validateReference,
	Warn: func(b, old binding) []string {
		if len(b.Spec.PermissionClaims) == 0 || old != nil && len(old.Spec.PermissionClaims) > 0 {
			return nil
		}
		return []string{"spec.permissionClaims: this server does not grant claims, whether accepted or rejected"}
	},
	Columns: []resource.Column[binding]{
		resource.Name[binding](), resource.Age[binding](),
		{Name: "Ready", Description: "Whether the resources have been bound", Cell: func(b binding) any { return ready(b) }},
	},
	Subresources: map[string]resource.Subresource[binding]{"status": {
		Keep:  func(b, old binding) { b.Spec = old.Spec },
		Reset: fieldpath.NewSet(fieldpath.MakePathOrDie("spec")),
	}},
}

func ready(b binding) string {
	if c := conditions.Get(b, "Ready"); c != nil {
		return string(c.Status)
	}
	return ""
}

// prepareBinding gives a new binding its finalizer at once, so that it never goes before its objects.
func prepareBinding(b binding) {
	b.Generation = 1
	b.Status = apisv1alpha2.APIBindingStatus{}
	if !slices.Contains(b.Finalizers, clusters.BindingFinalizer) {
		b.Finalizers = append(b.Finalizers, clusters.BindingFinalizer)
	}
}

func keepBinding(b, old binding) {
	b.Status = old.Status
	if !equality.Semantic.DeepEqual(b.Spec, old.Spec) {
		b.Generation = old.Generation + 1
	}
}

var path = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(:[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

func validateBinding(b binding) field.ErrorList {
	errs := apisv1alpha2.ValidateAPIBinding(b)
	if e := b.Spec.Reference.Export; e != nil && e.Path != "" && !path.MatchString(e.Path) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "reference", "export", "path"), e.Path, "must be the path of a workspace, such as root:a:b, or the name of a logical cluster"))
	}
	return errs
}

func validateReference(b, old binding) (errs field.ErrorList) {
	if !equality.Semantic.DeepEqual(b.Spec.Reference, old.Spec.Reference) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "reference"), "a binding never changes its export: make another binding"))
	}
	return errs
}
