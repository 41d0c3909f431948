package server

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/catalog"
	"github.com/regent-project/regent/pkg/controllers/loop"
	"github.com/regent-project/regent/pkg/server/routing"
)

// BenchmarkFirstReconcile is from when a warm replica sends the write that acquires the lease to the first reconcile of
// a controller beside the catalog's, with 100,000 objects in the caches, all of which the controller sweeps.
func BenchmarkFirstReconcile(b *testing.B) {
	const objects = 100_000
	registry, err := catalog.Registry()
	if err != nil {
		b.Fatal(err)
	}
	first := make(chan time.Time, 100)
	registry, err = registry.With(controllers.Descriptor{Name: "bench", New: func(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
		var once sync.Once
		l := loop.New(clusters.Range{}, "bench", 2, func(context.Context, clusters.Key) error {
			once.Do(func() { first <- time.Now() })
			return nil
		})
		loop.Watch(l, deps.Informers.Metadata[corev1.SchemeGroupVersion.WithResource("configmaps")],
			func(m *metav1.PartialObjectMetadata) []clusters.Key { return []clusters.Key{clusters.KeyOf(m)} })
		return l, nil
	}})
	if err != nil {
		b.Fatal(err)
	}
	cfg := config(b, b.TempDir())
	cfg.Registry = registry
	cfg.EnableLeaderElection = true
	r := startReplica(b, cfg)
	admin, endpoints := r.adminIn(b, clusters.SystemAdmin), r.admin(b)
	var creating sync.WaitGroup
	for c := range 32 {
		creating.Go(func() {
			for i := c; i < objects; i += 32 {
				if _, err := admin.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(b.Context(), &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("object-%d", i)},
				}, metav1.CreateOptions{}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	creating.Wait()
	lease := func() *coordinationv1.Lease {
		l, err := admin.CoordinationV1().Leases(cfg.Election.Namespace).Get(b.Context(), cfg.Election.Name, metav1.GetOptions{})
		if err != nil {
			b.Fatal(err)
		}
		return l
	}
	<-first // of the term in which the objects were created
	var total, worst time.Duration
	for b.Loop() {
		time.Sleep(5 * time.Second) // so that what the last term was told of has been reconciled
		if err := endpoints.Post().AbsPath(routing.StepDownPath).Do(b.Context()).Error(); err != nil {
			b.Fatal(err)
		}
		took := (<-first).Sub(lease().Spec.AcquireTime.Time)
		total, worst = total+took, max(worst, took)
	}
	b.ReportMetric(float64(total.Milliseconds())/float64(b.N), "ms/reconcile")
	b.ReportMetric(float64(worst.Milliseconds()), "ms-worst")
	b.ReportMetric(0, "ns/op")
	if err := r.stop(b); err != nil {
		b.Error(err)
	}
}
