package resource

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
)

// What is missing shows when the server starts, not when somebody uses the resource.
func TestADefinitionMustBeComplete(t *testing.T) {
	const missing = "configmaps: the definition must have List, Name and Columns"
	for name, c := range map[string]struct {
		change func(*Definition[*corev1.ConfigMap])
		want   string
	}{
		"complete":                   {func(*Definition[*corev1.ConfigMap]) {}, ""},
		"no list":                    {func(d *Definition[*corev1.ConfigMap]) { d.List = nil }, missing},
		"no rule for names":          {func(d *Definition[*corev1.ConfigMap]) { d.Name = nil }, missing},
		"no columns":                 {func(d *Definition[*corev1.ConfigMap]) { d.Columns = nil }, missing},
		"an object instead of lists": {func(d *Definition[*corev1.ConfigMap]) { d.List = &corev1.ConfigMap{} }, "*v1.ConfigMap is no list"},
		"a list of others": {
			func(d *Definition[*corev1.ConfigMap]) { d.List = &corev1.SecretList{} }, "*v1.SecretList is a list of v1.Secret, not of ConfigMap",
		},
	} {
		d := Definition[*corev1.ConfigMap]{
			GVR: corev1.SchemeGroupVersion.WithResource("configmaps"), List: &corev1.ConfigMapList{}, Name: validation.NameIsDNSSubdomain,
			Columns: []Column[*corev1.ConfigMap]{Name[*corev1.ConfigMap]()},
		}
		c.change(&d)
		err := d.AddToScheme(runtime.NewScheme())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
