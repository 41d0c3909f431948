package storage_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	upstream "k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/clusters"
)

// described returns a configmap with all that objects may share.
func described(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, Labels: map[string]string{"app": "shop"},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`),
		}},
	}}
}

// cached returns an object as the watch cache has it.
func cached(t *testing.T, layers upstream.Interface, cluster logicalcluster.Name, name string) *corev1.ConfigMap {
	t.Helper()
	out := &corev1.ConfigMap{}
	if err := layers.Get(clusters.With(t.Context(), cluster), configMaps+"/default/"+name, upstream.GetOptions{ResourceVersion: "0"}, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func sameMap(a, b map[string]string) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}

// Two objects of a cluster share all that is equal in them, whether the watch cache has read them in its list or its
// watch. An update of one leaves the other as it was.
func TestTheWatchCacheHoldsWhatObjectsHaveInCommonOnceAndUpdatesTouchOne(t *testing.T) {
	layers := openFilled(t)
	ctx := clusters.With(t.Context(), "here")
	create := func(ctx context.Context, name string) {
		if err := layers.Create(ctx, configMaps+"/default/"+name, described(name), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	seen := follow(t, layers, clusters.Wildcard, upstream.Everything)
	create(ctx, "a")
	create(ctx, "b")
	create(clusters.With(t.Context(), "there"), "a")
	receive(seen, 3)
	a, b, other := cached(t, layers, "here", "a"), cached(t, layers, "here", "b"), cached(t, layers, "there", "a")
	if !sameMap(a.Annotations, b.Annotations) || !sameMap(a.Labels, other.Labels) || a.ManagedFields[0].FieldsV1 != other.ManagedFields[0].FieldsV1 {
		t.Error("equal annotations, labels or managedFields are held twice")
	}
	if sameMap(a.Annotations, other.Annotations) || other.Annotations[logicalcluster.AnnotationKey] != "there" {
		t.Errorf("an object of another cluster has the annotations %v", other.Annotations)
	}

	// What an update is given, it may modify in place.
	touch := upstream.SimpleUpdate(func(o runtime.Object) (runtime.Object, error) {
		cm := o.(*corev1.ConfigMap)
		cm.Annotations["touched"], cm.Labels["app"] = "yes", "touched"
		cm.ManagedFields[0].FieldsV1.SetRawBytes([]byte(`{"f:labels":{}}`))
		return cm, nil
	})
	if err := layers.GuaranteedUpdate(ctx, configMaps+"/default/a", &corev1.ConfigMap{}, false, nil, touch, nil); err != nil {
		t.Fatal(err)
	}
	receive(seen, 1)
	if a := cached(t, layers, "here", "a"); a.Labels["app"] != "touched" || a.Annotations["touched"] != "yes" {
		t.Errorf("the update was lost: %v", a.ObjectMeta)
	}
	for _, untouched := range []*corev1.ConfigMap{cached(t, layers, "here", "b"), cached(t, layers, "there", "a")} {
		if len(untouched.Annotations) != 1 || untouched.Labels["app"] != "shop" || untouched.ManagedFields[0].FieldsV1.GetRawString() != `{"f:data":{}}` {
			t.Errorf("the update of an object has changed another one: %v", untouched.ObjectMeta)
		}
	}
}

// An object that is decoded in a list has what was stored, however many others have been there, and whatever their
// sizes.
func TestSharingChangesNoObject(t *testing.T) {
	layers := openFilled(t)
	want := map[string]*corev1.ConfigMap{}
	for n := range 40 {
		obj := described(fmt.Sprintf("x%d", n))
		obj.Labels = map[string]string{fmt.Sprint("a", n%3): "b", "b": fmt.Sprint("a", n%3), "long": strings.Repeat("x", 10*n)}
		obj.Annotations = map[string]string{"note": strings.Repeat("y", 20*n)}
		obj.ManagedFields[0].Manager = strings.Repeat("m", 1+3*n)
		obj.ManagedFields[0].FieldsV1.SetRawBytes(fmt.Appendf(nil, `{"f:data":{"f:%s":{}}}`, strings.Repeat("z", 100*n)))
		want[obj.Name] = obj.DeepCopy()
		if err := layers.Create(clusters.With(t.Context(), "here"), configMaps+"/default/"+obj.Name, obj, nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, version := range []string{"", "0"} {
		var list corev1.ConfigMapList
		p := upstream.Everything
		p.Limit = 100
		if err := layers.GetList(clusters.With(t.Context(), "here"), configMaps, upstream.ListOptions{ResourceVersion: version, Predicate: p, Recursive: true}, &list); err != nil {
			t.Fatal(err)
		}
		for _, got := range list.Items {
			expected := want[got.Name].DeepCopy()
			expected.Annotations[logicalcluster.AnnotationKey], expected.ResourceVersion = "here", got.ResourceVersion
			if !reflect.DeepEqual(got.ObjectMeta, expected.ObjectMeta) {
				t.Errorf("got %v, want %v", got.ObjectMeta, expected.ObjectMeta)
			}
		}
		if len(list.Items) != len(want) {
			t.Errorf("%d objects, want %d", len(list.Items), len(want))
		}
	}
}
