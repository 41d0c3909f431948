package apiextensions

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

type internalDefinition = *apiextensions.CustomResourceDefinition

// strategy has upstream's rules. They take a context, but neither wait nor look at the request, so they get an empty
// one.
var strategy = customresourcedefinition.NewStrategy(nil)

// internal returns a definition as upstream's rules want it. It shares nothing with d: the conversion moves parts
// around.
func internal(d definition) (internalDefinition, error) {
	out := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(d.DeepCopy(), out, nil); err != nil {
		return nil, fmt.Errorf("definition %s: %w", d.Name, err)
	}
	return out, nil
}

// change has upstream change a definition.
func change(d definition, by func(internalDefinition)) {
	in, err := internal(d)
	if err != nil {
		return // validation says so
	}
	by(in)
	out := &apiextensionsv1.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_apiextensions_CustomResourceDefinition_To_v1_CustomResourceDefinition(in, out, nil); err == nil {
		out.TypeMeta = d.TypeMeta
		*d = *out
	}
}

func prepareCreate(d definition) {
	change(d, func(in internalDefinition) { strategy.PrepareForCreate(context.Background(), in) })
}

func prepareUpdate(d, old definition) {
	before, err := internal(old)
	if err != nil {
		return
	}
	change(d, func(in internalDefinition) { strategy.PrepareForUpdate(context.Background(), in, before) })
}

func validateCreate(d definition) field.ErrorList {
	in, err := internal(d)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	return judged(func() field.ErrorList { return validation.ValidateCustomResourceDefinition(context.Background(), in) })
}

// judged returns what upstream's rules say of a definition. They panic for some schemas, such as one of an embedded
// resource whose metadata have additionalProperties with rules: such a one is refused, too.
func judged(rules func() field.ErrorList) (errs field.ErrorList) {
	defer func() {
		if value := recover(); value != nil {
			errs = field.ErrorList{field.Invalid(field.NewPath("spec", "versions"), field.OmitValueType{}, fmt.Sprintf(
				"a schema of it cannot be validated (%v): leave out x-kubernetes-validations below properties that Kubernetes defines, such as metadata of an embedded resource", value))}
		}
	}()
	return withoutMetadata(rules())
}

// validateUpdate leaves out the spec if it has not changed, which costs more than all else: the status changes more
// often.
func validateUpdate(d, old definition) field.ErrorList {
	in, err := internal(d)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	before, err := internal(old)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	if equality.Semantic.DeepEqual(d.Spec, old.Spec) {
		return withoutMetadata(validation.ValidateUpdateCustomResourceDefinitionStatus(context.Background(), in, before))
	}
	return judged(func() field.ErrorList {
		return validation.ValidateCustomResourceDefinitionUpdate(context.Background(), in, before)
	})
}

// approval is the annotation that a definition must have if its group is one of Kubernetes'.
var approval = field.NewPath("metadata", "annotations").Key(apiextensionsv1.KubeAPIApprovedAnnotation).String()

// withoutMetadata leaves out what is wrong with metadata, which is validated for all resources alike, except for what
// only definitions must have: their names and the approval.
func withoutMetadata(errs field.ErrorList) (out field.ErrorList) {
	for _, err := range errs {
		if !strings.HasPrefix(err.Field, "metadata") || err.Field == "metadata.name" || err.Field == approval {
			out = append(out, err)
		}
	}
	return out
}

// warn returns what is unwise about a definition, or about a change of it. old is nil for a new one.
func warn(d, old definition) []string {
	in, err := internal(d)
	if err != nil {
		return nil
	}
	if old == nil {
		return strategy.WarningsOnCreate(context.Background(), in)
	}
	if equality.Semantic.DeepEqual(d.Spec, old.Spec) {
		return nil
	}
	before, err := internal(old)
	if err != nil {
		return nil
	}
	return strategy.WarningsOnUpdate(context.Background(), in, before)
}

// Complete sets what is missing in a definition that was made from something else, as if a client had created it. It
// writes into d.
func Complete(d *apiextensionsv1.CustomResourceDefinition) {
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(d)
	prepareCreate(d)
}

// Validate returns what is wrong with a complete definition, by the rules for new ones.
func Validate(d *apiextensionsv1.CustomResourceDefinition) field.ErrorList { return validateCreate(d) }
