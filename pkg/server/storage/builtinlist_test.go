package storage

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// A list over all logical clusters has two built-in namespaces for each, and a few that are stored. To put each in by
// moving all others would take hours.
func TestWhatIsBuiltIntoAHundredThousandClustersIsMergedInOnePass(t *testing.T) {
	const many = 100_000
	list := &corev1.NamespaceList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	var objects []keyed
	stored := 0
	for n := range many {
		for _, name := range []string{"default", "kube-system"} {
			key := fmt.Sprintf("c%06d/%s", n, name)
			objects = append(objects, keyed{below: key, Object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key, UID: "built-in"}}})
			if n%10 == 0 && name == "default" {
				list.Items = append(list.Items, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key, UID: "stored"}})
				stored++
			}
		}
	}
	p := page{list: list, asked: storage.ListOptions{Predicate: storage.Everything}, key: func(obj runtime.Object) (string, error) {
		return obj.(*corev1.Namespace).Name, nil
	}}
	if err := p.merge(objects, func(keyed) (bool, error) { return false, nil }); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 2*many {
		t.Fatalf("the list has %d objects, want %d", len(list.Items), 2*many)
	}
	for n := range list.Items {
		if list.Items[n].Name != objects[n].below {
			t.Fatalf("object %d is %s, want %s", n, list.Items[n].Name, objects[n].below)
		}
		if list.Items[n].UID == "stored" {
			stored--
		}
	}
	if stored != 0 {
		t.Errorf("%d stored objects are hidden by built-in ones", stored)
	}
}
