package custom

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
)

// A tenant may open as many watches as it likes, and each of them is asked about each change.
func TestAChangeIsLookedIntoOnceForAllWhoSelectByAField(t *testing.T) {
	v := &view{
		kind: schema.GroupKind{Group: "example.com", Kind: "Widget"}, namespaced: true, version: "v1", codec: unstructured.UnstructuredJSONScheme,
		empty: func() runtime.Object { return &unstructured.Unstructured{} },
	}
	o := &object{}
	if err := o.parse([]byte(widget("a", `{"size":1}`))); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 10_000) // the tenant chooses how long a value is
	var lookups atomic.Int64
	predicate := func(selector string) storage.SelectionPredicate {
		p, failed := v.predicate(t.Context(), storage.SelectionPredicate{
			Label: labels.Everything(), Field: fields.ParseSelectorOrDie(selector),
			GetAttrs: func(runtime.Object) (labels.Set, fields.Set, error) {
				lookups.Add(1)
				return nil, fields.Set{"spec.size": "1", "spec.text": long}, nil
			},
		})
		if err := failed.get(); err != nil {
			t.Error(err)
		}
		return p
	}
	var all sync.WaitGroup
	for range 100 {
		for selector, want := range map[string]bool{
			"spec.size=1": true, "spec.size=2": false, "spec.size!=2": true, "spec.text=" + long: true, "spec.text!=" + long: false, "spec.text=" + long + "y": false,
			"spec.text=" + shorten(long): false, "spec.size=1,spec.text=" + long: true, "spec.size=1,spec.text!=" + long: false,
		} {
			p := predicate(selector)
			all.Go(func() {
				copied := o.DeepCopyObject() // as the watch cache does it
				if got, err := p.Matches(copied); got != want || err != nil {
					t.Errorf("%s: %t %v", selector, got, err)
				}
			})
		}
	}
	all.Wait()
	if n := lookups.Load(); n != 1 {
		t.Errorf("it was lookups into %d times", n)
	}
}
