package clusters_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
)

func TestAViewOfMetadataShowsWhatTheInformerShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := controllertest.NewSource(configMap("a", "x", "1"), configMap("b", "x", "1"))
		inf := controllertest.Informer(t, source, map[string]func(*corev1.ConfigMap) []string{
			"value": func(c *corev1.ConfigMap) []string { return []string{c.Data["value"]} },
		})
		view := clusters.MetadataOf(inf)
		obj, _ := inf.Get(key("a", "x"))
		want := &metav1.PartialObjectMetadata{ObjectMeta: obj.ObjectMeta}
		got, ok := view.Get(key("a", "x"))
		page, _ := view.Page(clusters.Range{}, clusters.Key{}, 1)
		for what, got := range map[string][]*metav1.PartialObjectMetadata{
			"Get": {got}, "Page": page, "ByIndex": view.ByIndex("value", "1")[:1],
		} {
			if what == "ByIndex" && clusters.KeyOf(got[0]).Cluster == "b" {
				continue // in no order
			}
			if d := cmp.Diff([]*metav1.PartialObjectMetadata{want}, got); d != "" || !ok {
				t.Errorf("%s: %s", what, d)
			}
		}
		if got, ok := view.Get(key("c", "x")); ok || got != nil {
			t.Errorf("it shows %v, which is not there", got)
		}
		var told []string
		h := func(old, new *metav1.PartialObjectMetadata) {
			name := func(o *metav1.PartialObjectMetadata) string {
				if o == nil {
					return "nothing"
				}
				return clusters.KeyOf(o).String()
			}
			told = append(told, fmt.Sprintf("%s -> %s", name(old), name(new)))
		}
		remove := view.Follow(clusters.Range{}, h)
		if view.Handlers() != 1 || inf.Handlers() != 1 {
			t.Error("the handler of the view is none of the informer")
		}
		source.Set(configMap("a", "x", "2"))
		source.Delete(key("a", "x"))
		synctest.Wait()
		remove()
		follow := told
		told = nil
		view.Recent(clusters.Range{}, h)
		changes := []string{"a|default/x -> a|default/x", "a|default/x -> nothing"}
		if d := cmp.Diff(changes, follow) + cmp.Diff(changes, told); d != "" {
			t.Error(d)
		}
	})
}
