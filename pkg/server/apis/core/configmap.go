package core

import (
	"fmt"
	"maps"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/apis/resource"
)

var configMaps = resource.Definition[*corev1.ConfigMap]{
	GVR:            corev1.SchemeGroupVersion.WithResource("configmaps"),
	Namespaced:     true,
	ShortNames:     []string{"cm"},
	List:           &corev1.ConfigMapList{},
	Name:           validation.NameIsDNSSubdomain,
	Unconditional:  true,
	Default:        shareRootCA,
	BuiltIn:        clusters.BuiltIn.ConfigMaps,
	Validate:       validateConfigMap,
	ValidateUpdate: validateConfigMapUpdate,
	Columns: []resource.Column[*corev1.ConfigMap]{
		resource.Name[*corev1.ConfigMap](),
		{Name: "Data", Type: "integer", Description: "How many keys it has", Cell: func(c *corev1.ConfigMap) any { return int64(len(c.Data) + len(c.BinaryData)) }},
		resource.Age[*corev1.ConfigMap](),
	},
}

// shareRootCA makes the ConfigMaps of all namespaces share the text of the authorities, which they all have: a replica
// holds it once.
func shareRootCA(c *corev1.ConfigMap) {
	if c.Name != clusters.RootCAConfigMap {
		return
	}
	for key, value := range c.Data {
		c.Data[key] = unique.Make(value).Value()
	}
}

func validateConfigMap(c *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	size := 0
	for key, value := range c.Data {
		errs = append(errs, validateDataKey(key, field.NewPath("data"))...)
		if _, twice := c.BinaryData[key]; twice {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(key), key, "duplicate of key present in binaryData"))
		}
		size += len(value)
	}
	for key, value := range c.BinaryData {
		errs = append(errs, validateDataKey(key, field.NewPath("binaryData"))...)
		size += len(value)
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
	}
	return errs
}

func validateConfigMapUpdate(c, old *corev1.ConfigMap) field.ErrorList {
	if old.Immutable == nil || !*old.Immutable {
		return nil
	}
	var errs field.ErrorList
	if c.Immutable == nil || !*c.Immutable {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), fieldIsImmutable))
	}
	if !maps.Equal(c.Data, old.Data) {
		errs = append(errs, field.Forbidden(field.NewPath("data"), fieldIsImmutable))
	}
	if !equality.Semantic.DeepEqual(c.BinaryData, old.BinaryData) {
		errs = append(errs, field.Forbidden(field.NewPath("binaryData"), fieldIsImmutable))
	}
	return errs
}

const fieldIsImmutable = "field is immutable when `immutable` is set"

func validateDataKey(key string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, msg := range utilvalidation.IsConfigMapKey(key) {
		errs = append(errs, field.Invalid(path.Key(key), key, fmt.Sprintf("a key must be a file name: %s", msg)))
	}
	return errs
}
