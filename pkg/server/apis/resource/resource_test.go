package resource

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestADefinitionMustHaveTheListOfItsObjects(t *testing.T) {
	for name, c := range map[string]struct {
		list runtime.Object
		want string
	}{
		"its own":     {&corev1.ConfigMapList{}, ""},
		"none":        {nil, "configmaps: the definition has no List"},
		"an object":   {&corev1.ConfigMap{}, "*v1.ConfigMap is no list"},
		"another one": {&corev1.SecretList{}, "*v1.SecretList is a list of v1.Secret, not of ConfigMap"},
	} {
		d := Definition[*corev1.ConfigMap]{GVR: corev1.SchemeGroupVersion.WithResource("configmaps"), List: c.list}
		err := d.AddToScheme(runtime.NewScheme())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
