package apis

import (
	"encoding/base64"
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/regent-project/regent/test/etcdtest"
)

// forge makes a continue token as upstream encodes it.
func forge(t *testing.T, start string) string {
	t.Helper()
	data, err := json.Marshal(map[string]any{"v": "meta.k8s.io/v1", "rv": 1, "start": start})
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

func TestTheClusterAnnotationCannotBeForgedOrRemoved(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	client := s.kube(t, "aa").CoreV1().ConfigMaps("default")
	check := func(what string, got *corev1.ConfigMap, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got.Annotations[anAnnotation] != "aa" {
			t.Errorf("%s answers the annotation %q", what, got.Annotations[anAnnotation])
		}
		for _, rv := range []string{"", "0"} {
			stored, err := client.Get(t.Context(), "x", metav1.GetOptions{ResourceVersion: rv})
			if err == nil && stored.Annotations[anAnnotation] != "aa" {
				t.Errorf("%s leaves the annotation %q", what, stored.Annotations[anAnnotation])
			}
		}
	}
	forged := func() *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: map[string]string{anAnnotation: "bb"}}}
	}
	got, err := client.Create(t.Context(), forged(), metav1.CreateOptions{})
	check("create", got, err)
	got, err = client.Update(t.Context(), forged(), metav1.UpdateOptions{})
	check("update", got, err)
	bare := forged()
	bare.Annotations = nil
	got, err = client.Update(t.Context(), bare, metav1.UpdateOptions{})
	check("update without it", got, err)
	got, err = client.Patch(t.Context(), "x", types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+anAnnotation+`":null}}}`), metav1.PatchOptions{})
	check("merge patch", got, err)
	got, err = client.Patch(t.Context(), "x", types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/annotations"}]`), metav1.PatchOptions{})
	check("JSON patch", got, err)
	apply := applycorev1.ConfigMap("x", "default").WithAnnotations(map[string]string{anAnnotation: "bb"})
	got, err = client.Apply(t.Context(), apply, metav1.ApplyOptions{FieldManager: "test", Force: true})
	check("apply", got, err)
	got, err = client.Apply(t.Context(), applycorev1.ConfigMap("x", "default"), metav1.ApplyOptions{FieldManager: "test", Force: true})
	check("apply without it", got, err)
	if list, err := s.kube(t, "bb").CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("cluster bb lists %d objects, %v", len(list.Items), err)
	}
}
