package apiextensions

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Complete sets what is missing in a definition that was made from something else, as if a client had created it. It
// writes into d.
func Complete(d *apiextensionsv1.CustomResourceDefinition) {
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(d)
	prepareCreate(d)
}

// Validate returns what is wrong with a complete definition, by the rules for new ones.
func Validate(d *apiextensionsv1.CustomResourceDefinition) field.ErrorList { return validateCreate(d) }
