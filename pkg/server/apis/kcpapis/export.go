package kcpapis

import (
	"crypto/sha256"
	"fmt"
	"strings"

	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/regent-project/regent/pkg/server/apis/resource"
)

type export = *apisv1alpha2.APIExport

var exports = resource.Definition[export]{
	GVR:        apisv1alpha2.SchemeGroupVersion.WithResource("apiexports"),
	Categories: []string{"kcp"},
	List:       &apisv1alpha2.APIExportList{},
	Stored:     resource.Stored[export]{JSONOnly: true},
	Name:       validName,
	Reset:      fieldpath.NewSet(fieldpath.MakePathOrDie("status")),
	Default: func(e export) {
		for n := range e.Spec.Resources {
			if s := &e.Spec.Resources[n].Storage; s.CRD == nil && s.Virtual == nil {
				s.CRD = &apisv1alpha2.ResourceSchemaStorageCRD{}
			}
		}
	},
	PrepareCreate: func(e export) {
		e.Generation = 1
		e.Status = apisv1alpha2.APIExportStatus{IdentityHash: identityHash(e.UID)}
		conditions.MarkTrue(e, apisv1alpha2.APIExportIdentityValid)
	},
	PrepareUpdate: func(e, old export) {
		e.Status = old.Status
		if !equality.Semantic.DeepEqual(e.Spec, old.Spec) {
			e.Generation = old.Generation + 1
		}
	},
	Validate: validateExport,
	Warn: func(e, old export) (warnings []string) {
		if len(e.Spec.PermissionClaims) > 0 && (old == nil || len(old.Spec.PermissionClaims) == 0) {
			warnings = append(warnings, "spec.permissionClaims: this server does not grant claims; bindings get the resources only")
		}
		if e.Spec.Identity != nil && (old == nil || old.Spec.Identity == nil) {
			warnings = append(warnings, "spec.identity: this server does not use the Secret; the identity of an export is its own")
		}
		return warnings
	},
	Columns: []resource.Column[export]{resource.Name[export](), resource.Age[export]()},
}

// identityHash returns the identity of an export. It names the export, also in bindings, and gives no rights to
// anybody. So no secret is needed: each export has an identity of its own, which no other one can have.
func identityHash(uid types.UID) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(uid)))
}

func validateExport(e export) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if e.Spec.MaximalPermissionPolicy != nil {
		errs = append(errs, field.Forbidden(spec.Child("maximalPermissionPolicy"),
			"this server does not limit what users of a bound resource may do: leave it out if you trust the administrators of the logical clusters that may bind"))
	}
	seen := map[string]bool{}
	for n, r := range e.Spec.Resources {
		at, name := spec.Child("resources").Index(n), r.Name+"."+r.Group
		if seen[name] {
			errs = append(errs, field.Duplicate(at, name))
		}
		seen[name] = true
		if r.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		if r.Group == "" {
			errs = append(errs, field.Required(at.Child("group"), "only resources of named groups can be exported"))
		}
		if !strings.HasSuffix(r.Schema, "."+name) {
			errs = append(errs, field.Invalid(at.Child("schema"), r.Schema, fmt.Sprintf("must end in %q", "."+name)))
		}
		if r.Storage.Virtual != nil {
			errs = append(errs, field.Forbidden(at.Child("storage", "virtual"), "this server has no virtual resources: use crd"))
		}
	}
	return errs
}
