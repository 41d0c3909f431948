package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/regent-project/regent/test/e2e/harness"
)

// BenchmarkCustomResources measures what users wait for: from a definition until it is established, and until there is
// an object of it; creations and gets of custom objects and, in turns, of ConfigMaps of the same size.
func BenchmarkCustomResources(b *testing.B) {
	shard := harness.NewShard(harness.StartEtcd(b).URL)
	a, other := shard.Start(b, "a"), shard.Start(b, "b")
	leader, _ := harness.Leader(b, a, other)
	leader.WaitRoot()
	a.CreateWorkspace("one")
	cluster := other.WaitWorkspace("one")
	through := map[string]*harness.Replica{"leader": leader, "standby": a}
	if leader == a {
		through["standby"] = other
	}
	for name, r := range through {
		user, took, first := r.Dynamic(cluster), times{}, times{}
		for n := range 50 {
			plural, kind := fmt.Sprintf("%ss%d", name, n), fmt.Sprintf("Kind%s%d", name, n)
			began := time.Now()
			if _, err := user.Resource(definitions).Create(b.Context(), definitionOf(kind, plural), metav1.CreateOptions{}); err != nil {
				b.Fatal(err)
			}
			for !isEstablished(b.Context(), r, cluster, plural+".example.com") {
			}
			took.add(began)
			of := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: plural}
			if _, err := user.Resource(of).Namespace("default").Create(b.Context(), customObject(kind, "x"), metav1.CreateOptions{}); err != nil {
				b.Fatal(err)
			}
			first.add(began)
		}
		b.ReportMetric(took.median(), "ms-established-by-"+name)
		b.ReportMetric(first.median(), "ms-first-object-by-"+name)
	}
	b.ReportMetric(0, "ns/op")
	compareWithConfigMaps(b, leader.Dynamic(cluster))
}

func compareWithConfigMaps(b *testing.B, user dynamic.Interface) {
	if _, err := user.Resource(definitions).Create(b.Context(), definitionOf("Widget", "widgets"), metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	value := strings.Repeat("0123456789", 100)
	widgets := user.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).Namespace("default")
	configMaps := user.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
	widget := func(name string) *unstructured.Unstructured {
		o := customObject("Widget", name)
		o.Object["spec"] = map[string]any{"text": value}
		return o
	}
	configMap := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": map[string]any{"text": value},
		}}
	}
	for {
		if _, err := widgets.Create(b.Context(), widget("first"), metav1.CreateOptions{}); err == nil {
			break
		} else if !apierrors.IsNotFound(err) {
			b.Fatal(err)
		}
	}
	var made, read [2]times
	for n := range 1000 {
		for i, of := range []struct {
			client dynamic.ResourceInterface
			object func(string) *unstructured.Unstructured
		}{{widgets, widget}, {configMaps, configMap}} {
			name, began := fmt.Sprintf("x%d", n), time.Now()
			if _, err := of.client.Create(b.Context(), of.object(name), metav1.CreateOptions{}); err != nil {
				b.Fatal(err)
			}
			made[i].add(began)
			began = time.Now()
			if _, err := of.client.Get(b.Context(), name, metav1.GetOptions{}); err != nil {
				b.Fatal(err)
			}
			read[i].add(began)
		}
	}
	b.ReportMetric(made[0].median(), "ms/create")
	b.ReportMetric(made[0].median()/made[1].median(), "create-of-configmap's")
	b.ReportMetric(read[0].median(), "ms/get")
	b.ReportMetric(read[0].median()/read[1].median(), "get-of-configmap's")
}

// times are how long something took, again and again.
type times []time.Duration

func (t *times) add(began time.Time) { *t = append(*t, time.Since(began)) }

// median returns milliseconds.
func (t times) median() float64 {
	slices.Sort(t)
	return float64(t[len(t)/2].Microseconds()) / 1000
}
