package storage

import (
	"context"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// limits are how many objects were asked for at once. 0: all of them.
type limits []int64

func (l *limits) expect(t *testing.T, limit int64) {
	t.Helper()
	if len(*l) != 1 || (*l)[0] != limit {
		t.Errorf("it was asked for %v objects, want %d", *l, limit)
	}
	*l = nil
}

// listedStorage has a thousand objects, as it says.
type listedStorage struct {
	storage.Interface
	limits
	room int
}

func (l *listedStorage) Stats(context.Context) (storage.Stats, error) {
	return storage.Stats{ObjectCount: 1_000}, nil
}

func (l *listedStorage) GetList(_ context.Context, _ string, opts storage.ListOptions, list runtime.Object) error {
	l.limits = append(l.limits, opts.Predicate.Limit)
	of := list.(*corev1.ConfigMapList)
	l.room, of.ResourceVersion = cap(of.Items), "5"
	return nil
}

type listedEtcd struct {
	kubernetes.Interface
	limits
}

func (l *listedEtcd) List(_ context.Context, _ string, opts kubernetes.ListOptions) (kubernetes.ListResponse, error) {
	l.limits = append(l.limits, opts.Limit)
	return kubernetes.ListResponse{}, nil
}

// etcd counts what remains at the end of each page.
func TestAWatchCacheListsEverythingAtOnce(t *testing.T) {
	to := &listedStorage{}
	of := &tallied{to, newTally("/registry/core/configmaps", func(logicalcluster.Name, int) {})}
	opts := storage.ListOptions{Recursive: true, Predicate: storage.SelectionPredicate{Limit: 500}}
	if err := of.GetList(t.Context(), "/core/configmaps", opts, &corev1.ConfigMapList{}); err != nil {
		t.Fatal(err)
	}
	to.expect(t, 0)
	if to.room < 1_000 {
		t.Errorf("the list has room for %d objects", to.room)
	}
}

// An answer of etcd with everything would be in memory at once, there and here.
func TestAWatchCacheReadsPagesFromAnEtcdWithoutStreams(t *testing.T) {
	to := &listedEtcd{}
	pages := &countedPages{to}
	ofCache := context.WithValue(t.Context(), tallyKey{}, newTally("/registry/core/configmaps", func(logicalcluster.Name, int) {}))
	for ctx, want := range map[context.Context]int64{ofCache: pageOfCache, t.Context(): 0} {
		if _, err := pages.List(ctx, "/registry/core/configmaps/", kubernetes.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		to.expect(t, want)
	}
}
