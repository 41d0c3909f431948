package core

import (
	"strings"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRootCAsShareTheirText(t *testing.T) {
	of := func(name string) *byte {
		c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"ca.crt": strings.Clone("some authority")}}
		configMaps.Default(c)
		if c.Data["ca.crt"] != "some authority" {
			t.Errorf("the text has become %q", c.Data["ca.crt"])
		}
		return unsafe.StringData(c.Data["ca.crt"])
	}
	if first, second := of("kube-root-ca.crt"), of("kube-root-ca.crt"); first != second {
		t.Error("two of the ConfigMaps hold two copies")
	}
	if first, second := of("mine"), of("mine"); first == second {
		t.Error("others share what may be secret, or never equal")
	}
}
