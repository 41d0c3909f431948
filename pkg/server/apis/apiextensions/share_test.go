package apiextensions

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// large returns a definition whose schema has some 34 KiB in JSON, as kubectl apply leaves it.
func large(t testing.TB) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	properties := map[string]apiextensionsv1.JSONSchemaProps{}
	for n := range 275 {
		properties[fmt.Sprintf("field%d", n)] = apiextensionsv1.JSONSchemaProps{
			Type: "string", Description: fmt.Sprintf("Field %d says what the %dth thing is about, in a sentence of the usual length.", n, n),
		}
	}
	d := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties}},
			}},
		},
	}
	applied, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	if len(applied) < 33<<10 || len(applied) > 40<<10 {
		t.Fatalf("the definition has %d bytes", len(applied))
	}
	d.Status = apiextensionsv1.CustomResourceDefinitionStatus{AcceptedNames: d.Spec.Names, StoredVersions: []string{"v1"}, Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
		{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, Reason: "NoConflicts", Message: "no conflicts found"},
		{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue, Reason: "InitialNamesAccepted", Message: "the initial names have been accepted"},
	}}
	d.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: string(applied)}
	return d
}

func heap() int64 {
	var m runtime.MemStats
	for range 3 { // what is weak goes with the second
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestADefinitionInManyClustersIsHeldOnce(t *testing.T) {
	const clusters, most = 1000, 2 << 10
	stored, err := large(t).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	all := make([]*apiextensionsv1.CustomResourceDefinition, clusters)
	for n := range all {
		all[n] = &apiextensionsv1.CustomResourceDefinition{}
		if err := all[n].Unmarshal(stored); err != nil {
			t.Fatal(err)
		}
		share(all[n])
	}
	each := (heap() - before) / clusters
	t.Logf("%d bytes each", each)
	if each > most {
		t.Errorf("a definition takes %d bytes in each further cluster, want at most %d", each, most)
	}
	again, err := all[7].Marshal()
	if err != nil || string(again) != string(stored) {
		t.Errorf("what is shared says something else: %v", err)
	}
	runtime.KeepAlive(all)
	for began := time.Now(); schemas.len()+specs.len() > 0; runtime.GC() {
		if time.Since(began) > 30*time.Second {
			t.Fatalf("%d schemas and %d specs are held for nobody", schemas.len(), specs.len())
		}
	}
}

func (s *shared[T]) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}
