package loop_test

import (
	"context"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
)

// source is what an informer lists and watches.
type source struct {
	*cachetesting.FakeControllerSource
}

func newSource(objs ...*corev1.ConfigMap) source {
	s := source{cachetesting.NewFakeControllerSource()}
	for _, obj := range objs {
		s.Add(obj)
	}
	return s
}

// IsWatchListSemanticsUnSupported is asked by client-go: the source has lists and watches only.
func (source) IsWatchListSemanticsUnSupported() bool { return true }

// informer is client-go's, and counts its handlers.
type informer struct {
	cache.SharedIndexInformer
	handlers atomic.Int32
}

func (i *informer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	r, err := i.SharedIndexInformer.AddEventHandler(h)
	if err == nil {
		i.handlers.Add(1)
	}
	return r, err
}

func (i *informer) RemoveEventHandler(r cache.ResourceEventHandlerRegistration) error {
	i.handlers.Add(-1)
	return i.SharedIndexInformer.RemoveEventHandler(r)
}

// Handlers returns the number of handlers that were added and not removed.
func (i *informer) Handlers() int { return int(i.handlers.Load()) }

// newInformer returns an informer that does not run.
func newInformer(s source) *informer {
	return &informer{SharedIndexInformer: cache.NewSharedIndexInformer(s, &corev1.ConfigMap{}, 0, cache.Indexers{})}
}

// running returns an informer that is synced, and runs until the test ends.
func running(t *testing.T, s source) *informer {
	t.Helper()
	inf := newInformer(s)
	t.Cleanup(run(t, s, inf))
	if !cache.WaitForCacheSync(t.Context().Done(), inf.HasSynced) {
		t.Fatal("the informer is not synced")
	}
	return inf
}

// run runs an informer. stop returns when it has ended.
func run(t *testing.T, s source, inf *informer) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		inf.RunWithContext(ctx)
	}()
	return func() {
		cancel()
		<-ended
		s.Shutdown()
	}
}

func configMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func keys(c *corev1.ConfigMap) []cache.ObjectName {
	return []cache.ObjectName{cache.MetaObjectToName(c)}
}
