package loop

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A worker may take a key before it is added again, and then reconciles it twice for one change.
func TestAChangeAddsEachKeyOnce(t *testing.T) {
	labelled := func(label string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"of": label}}}
	}
	for name, tc := range map[string]struct {
		old, new *corev1.ConfigMap
		want     []string
	}{
		"a creation":                 {nil, labelled("a"), []string{"a"}},
		"a deletion":                 {labelled("a"), nil, []string{"a"}},
		"a change of something else": {labelled("a"), labelled("a"), []string{"a"}},
		"a change of the key":        {labelled("a"), labelled("b"), []string{"a", "b"}},
	} {
		var got []string
		eachOf(tc.old, tc.new, func(c *corev1.ConfigMap) []string { return []string{c.Labels["of"]} }, func(k string) { got = append(got, k) })
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s adds %v, want %v", name, got, tc.want)
		}
	}
}
