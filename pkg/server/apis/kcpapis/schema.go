package kcpapis

import (
	"fmt"
	"strings"

	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/regent-project/regent/pkg/server/apis/apiextensions"
	"github.com/regent-project/regent/pkg/server/apis/resource"
)

type schema = *apisv1alpha1.APIResourceSchema

var schemas = resource.Definition[schema]{
	GVR:            apisv1alpha1.SchemeGroupVersion.WithResource("apiresourceschemas"),
	Categories:     []string{"kcp"},
	List:           &apisv1alpha1.APIResourceSchemaList{},
	Stored:         resource.Stored[schema]{JSONOnly: true},
	Name:           validName,
	Default:        setNames,
	PrepareCreate:  func(s schema) { s.Generation = 1 },
	ValidateCreate: validateSchema,
	ValidateUpdate: func(s, old schema) (errs field.ErrorList) {
		if !equality.Semantic.DeepEqual(s.Spec, old.Spec) {
			errs = append(errs, field.Forbidden(field.NewPath("spec"), "a schema never changes: make another one, and have the APIExport name that"))
		}
		return errs
	},
	Columns: []resource.Column[schema]{resource.Name[schema](), resource.Age[schema]()},
}

// setNames sets the names that a definition would get by default, so that whoever competes for names finds all of them.
func setNames(s schema) {
	names := &s.Spec.Names
	if names.Singular == "" {
		names.Singular = strings.ToLower(names.Kind)
	}
	if names.ListKind == "" && names.Kind != "" {
		names.ListKind = names.Kind + "List"
	}
}

// maxNames is how long plural and group may be together: the name of the copy that bindings use has a uid before them.
const maxNames = 200

// validateSchema checks a new schema by the rules for CustomResourceDefinitions. Later changes leave the spec as it is.
func validateSchema(s schema) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if suffix := "." + s.Spec.Names.Plural + "." + s.Spec.Group; len(s.Name) <= len(suffix) || !strings.HasSuffix(s.Name, suffix) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), s.Name, "must be <prefix>.<spec.names.plural>.<spec.group>, with a prefix such as v1 or today"))
	}
	if name := s.Spec.Names.Plural + "." + s.Spec.Group; len(name) > maxNames {
		errs = append(errs, field.TooLong(spec.Child("group"), name, maxNames))
	}
	if v := s.Spec.NameValidation; v != "" && v != "DNS1123Subdomain" {
		errs = append(errs, field.NotSupported(spec.Child("nameValidation"), v, []string{"DNS1123Subdomain"}))
	}
	if len(s.Spec.Versions) > 1 && s.Spec.Conversion == nil {
		errs = append(errs, field.Required(spec.Child("conversion"), "there are several versions"))
	}
	if len(errs) > 0 {
		return errs
	}
	d, err := Definition(s)
	if err != nil {
		return field.ErrorList{field.Invalid(spec.Child("versions"), s.Name, fmt.Sprintf("cannot be read: %v", err))}
	}
	return apiextensions.Validate(d)
}
