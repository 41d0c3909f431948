package controllers_test

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/regent-project/regent/pkg/controllers"
)

// nowhere is a source for informers that do not run.
type nowhere struct{}

func (nowhere) Objects(schema.GroupVersionResource) cache.ListerWatcherWithContext  { return nil }
func (nowhere) Metadata(schema.GroupVersionResource) cache.ListerWatcherWithContext { return nil }
func (nowhere) CustomObjects() cache.ListerWatcherWithContext                       { return nil }

func TestNoInformerIsForgotten(t *testing.T) {
	resources := []controllers.Resource{
		{GVR: corev1.SchemeGroupVersion.WithResource("namespaces"), Kind: "Namespace"},
		{GVR: corev1.SchemeGroupVersion.WithResource("secrets"), Kind: "Secret", Namespaced: true},
	}
	informers := controllers.NewInformers(nowhere{}, resources)
	want := map[string]any{"metadata of secrets": informers.Metadata[resources[1].GVR]}
	for _, field := range reflect.VisibleFields(reflect.TypeOf(informers)) {
		if field.Name != "Metadata" {
			want[strings.ToLower(field.Name)] = reflect.ValueOf(informers).FieldByIndex(field.Index).Interface()
		}
	}
	all := informers.All()
	for name, informer := range want {
		if reflect.ValueOf(informer).IsNil() {
			t.Errorf("%s: NewInformers does not make it", name)
		} else if all[name] != informer {
			t.Errorf("%s: All has %v", name, all[name])
		}
	}
	if len(informers.Metadata) != len(resources) {
		t.Errorf("%d resources have metadata, want %d", len(informers.Metadata), len(resources))
	}
	if len(all) != len(want) {
		t.Errorf("All has %d informers, want %d", len(all), len(want))
	}
}
