package bench

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/test/e2e/harness"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// definitionOf returns a definition with a schema of so many fields, as kubectl apply sends it. Its resource is called
// plural.
func definitionOf(group, plural string, fields int) *unstructured.Unstructured {
	properties := map[string]any{}
	for n := range fields {
		properties[fmt.Sprintf("field%d", n)] = map[string]any{
			"type": "string", "description": fmt.Sprintf("Field %d of %s says what the %dth thing is about, in a sentence of the usual length.", n, plural, n),
		}
	}
	d := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced", "names": map[string]any{"plural": plural, "kind": "Kind" + plural},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object", "properties": map[string]any{"spec": map[string]any{"type": "object", "properties": properties}},
				}},
			}},
		},
	}}
	applied, err := json.Marshal(d)
	if err != nil {
		panic(err)
	}
	d.SetAnnotations(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": string(applied)})
	return d
}

// define creates a definition and waits until it is established. It returns how long that took.
func define(b *testing.B, through *harness.Replica, cluster string, d *unstructured.Unstructured) time.Duration {
	b.Helper()
	client, began := through.Dynamic(cluster).Resource(definitions), time.Now()
	if _, err := client.Create(b.Context(), d, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	harness.EventuallyIn(b, 5*time.Minute, d.GetName()+" is established", func() bool {
		now, err := client.Get(b.Context(), d.GetName(), metav1.GetOptions{})
		return err == nil && isEstablished(now)
	})
	return time.Since(began)
}

func isEstablished(d *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(d.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
			return true
		}
	}
	return false
}

// spread copies what etcd has of the definitions of the first workspace, whose names contain a text, to so many others,
// and waits until the replicas have seen them.
func (m *machine) spread(b *testing.B, containing string, to int) {
	b.Helper()
	etcd, cluster := m.etcd.Client(b), m.stored(b).cluster
	all, err := etcd.Get(b.Context(), "/registry/apiextensions.k8s.io/customresourcedefinitions/"+cluster+"/", clientv3.WithPrefix())
	if err != nil {
		b.Fatal(err)
	}
	stored := workspaceStored{cluster: cluster}
	var last string
	for _, kv := range all.Kvs {
		if strings.Contains(string(kv.Key), containing) {
			stored.puts = append(stored.puts, [2]string{string(kv.Key), string(kv.Value)})
			last = string(kv.Key[strings.LastIndex(string(kv.Key), "/")+1:])
		}
	}
	began := time.Now()
	m.copy(b, stored, 1, to)
	progress("%d definitions in %d clusters more: copied in %v", len(stored.puts), to-1, time.Since(began))
	for _, replica := range []*harness.Replica{m.leader, m.standby} {
		for n := 1; n < to; n++ {
			m.shows(b, replica, stored.clusterOf(n), last)
		}
	}
	progress("seen by both after %v", time.Since(began))
}

// shows waits until a replica shows a definition to the user, from what it has in memory. That one hears of it, and of
// the right to read it, is a promise: what is asked of storage would be answered anyway.
func (m *machine) shows(b *testing.B, replica *harness.Replica, cluster, name string) {
	b.Helper()
	client, began := replica.Dynamic(cluster).Resource(definitions), time.Now()
	for {
		_, err := client.Get(b.Context(), name, metav1.GetOptions{ResourceVersion: "0"})
		if err == nil {
			return
		}
		if time.Since(began) > 5*time.Minute {
			b.Fatalf("%s does not show %s in %s: %v", replica.Name(), name, cluster, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// clusterOf is the name of workspace n's logical cluster.
func (s workspaceStored) clusterOf(n int) string { return fmt.Sprintf("c%0*d", len(s.cluster)-1, n) }

// usage is what a replica takes at one time.
type usage struct {
	heap, resident float64 // KiB
	goroutines     int
}

// takes looks at a replica. Upstream's watch cache leaves a timer of 3 s behind for each read that waited for it: these
// are not counted.
func takes(b *testing.B, of *harness.Replica) usage {
	b.Helper()
	for range 2 { // what is weak goes with the second collection
		of.Heap()
	}
	time.Sleep(10 * time.Second) // what is released to the system is so after a while
	all, timers := of.Goroutines("cacher.(*watchCache).waitUntilFreshLocked")
	return usage{heap: float64(of.Heap()) / 1024, resident: float64(of.ResidentMiB()) * 1024, goroutines: all - timers}
}

// timed returns the median time of some GETs, and the size of the answer.
func timed(b *testing.B, of *harness.Replica, path, accept string, times int) (time.Duration, int) {
	b.Helper()
	client := httpClient(b, of)
	var took []time.Duration
	var size int
	for range times {
		began := time.Now()
		req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, of.URL+path, nil)
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		size = read(b, client, req)
		took = append(took, time.Since(began))
	}
	return median(took), size
}
