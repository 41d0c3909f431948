package main

import (
	"context"
	"os"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/test/e2e/history"
)

// announcing writes once in a term, as soon as it runs: whoever watches etcd sees when a term's controllers work. It
// starts when the catalog's do.
type announcing struct {
	client kubernetes.Interface
	token  fence.Token
}

// Run implements controllers.Controller.
func (a *announcing) Run(ctx context.Context) error {
	object := applycorev1.ConfigMap(history.FirstWrite+history.RangeOf(a.token.Name), metav1.NamespaceDefault).
		WithData(map[string]string{history.TermKey: history.TermOf(a.token), history.PIDKey: strconv.Itoa(os.Getpid())})
	for ctx.Err() == nil {
		_, err := a.client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Apply(clusters.With(ctx, "root"), object, metav1.ApplyOptions{FieldManager: "writer", Force: true})
		if err == nil {
			break
		}
		klog.FromContext(ctx).Error(err, "The term's first write failed")
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond): // the shard's first term is still making root
		}
	}
	<-ctx.Done()
	return nil
}
