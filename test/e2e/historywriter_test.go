package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/regent-project/regent/test/e2e/harness"
)

// ackedWrite is a write, and when its client began it and was answered.
type ackedWrite struct {
	key          string // that of etcd
	deleted      bool
	revision     int64
	began, ended time.Time
}

// write has a writer in each of some workspaces, until stop is called. Then all their writes are known, and that etcd
// has each of them once, in their order, and no other one of their objects.
func (s *followedShard) write(workspaces ...string) (stop func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	var running sync.WaitGroup
	all := make([]*historyWriter, len(workspaces))
	for n, name := range workspaces {
		s.last++
		w := &historyWriter{followedShard: s, workspace: name, name: fmt.Sprint("w", s.last), there: map[string]bool{}}
		running.Go(func() { w.run(ctx) })
		all[n] = w
	}
	end := func() {
		cancel()
		running.Wait()
	}
	s.Cleanup(end)
	return func() {
		s.Helper()
		end()
		for _, w := range all {
			s.writes = append(s.writes, w.resolve()...)
		}
	}
}

// historyKinds are what writers write: what etcd has in protobuf, what is secret, and what is JSON.
var historyKinds = []schema.GroupVersionResource{
	corev1.SchemeGroupVersion.WithResource("configmaps"), corev1.SchemeGroupVersion.WithResource("secrets"), {Group: "example.com", Version: "v1", Resource: "widgets"},
}

// historyKey is that of etcd.
func historyKey(resource, cluster, name string) string {
	if resource == "widgets" {
		return fmt.Sprintf("/registry/custom/%s/example.com/Widget/default/%s", cluster, name)
	}
	return fmt.Sprintf("/registry/core/%s/%s/default/%s", resource, cluster, name)
}

func historyObject(resource, name, value string) *unstructured.Unstructured {
	switch resource {
	case "configmaps":
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": map[string]any{"n": value}}}
	case "secrets":
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name}, "stringData": map[string]any{"n": value}}}
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name}, "spec": map[string]any{"n": value}}}
}

// historyPause is the pause of a writer: the more it writes, the more a moment has that may be wrong, and two cores do
// something else, too.
const historyPause = 10 * time.Millisecond

// historyWriter creates, changes and deletes objects that are its own.
type historyWriter struct {
	*followedShard
	workspace, name string
	there           map[string]bool
	made            []ackedWrite
}

func (w *historyWriter) run(ctx context.Context) {
	client, err := dynamic.NewForConfig(w.b.AdminConfig("root:" + w.workspace))
	if err != nil {
		w.Error(err)
		return
	}
	for n := 0; ctx.Err() == nil; n++ {
		kind := historyKinds[rand.IntN(len(historyKinds))]  //nolint:gosec // a test
		name := fmt.Sprintf("%s-%d", w.name, rand.IntN(12)) //nolint:gosec // a test
		w.gate.RLock()
		one, err := w.writeOne(ctx, client.Resource(kind).Namespace("default"), kind, name, strconv.Itoa(n))
		w.gate.RUnlock()
		if err != nil {
			if !w.gone.Load() {
				w.Errorf("%s of %s in %s: %v", kind.Resource, name, w.workspace, err)
			}
			return
		}
		w.made = append(w.made, one)
		w.acked.Add(1)
		select {
		case <-ctx.Done():
		case <-time.After(historyPause):
		}
	}
}

// writeOne is not ended by ctx in the middle of a write, of which nobody would know whether it was made.
func (w *historyWriter) writeOne(ctx context.Context, in dynamic.ResourceInterface, kind schema.GroupVersionResource, name, value string) (one ackedWrite, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), harness.Patience)
	defer cancel()
	one.key = historyKey(kind.Resource, w.clusters[w.workspace], name)
	obj := historyObject(kind.Resource, name, value)
	one.began = time.Now()
	var is *unstructured.Unstructured
	switch there := w.there[one.key]; {
	case there && rand.IntN(3) == 0: //nolint:gosec // a test
		one.deleted = true
		err = in.Delete(ctx, name, metav1.DeleteOptions{})
	case there:
		var patch []byte
		if patch, err = json.Marshal(obj); err == nil {
			is, err = in.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
	default:
		is, err = in.Create(ctx, obj, metav1.CreateOptions{})
	}
	one.ended = time.Now()
	if err != nil {
		return one, err
	}
	if w.there[one.key] = !one.deleted; is != nil {
		one.revision, err = strconv.ParseInt(is.GetResourceVersion(), 10, 64)
	}
	return one, err
}

// resolve returns all writes with their revisions, of which clients are not told those of deletions.
func (w *historyWriter) resolve() []ackedWrite {
	w.Helper()
	made := map[string][]etcdChange{}
	if !w.gone.Load() {
		w.history.now()
	}
	mark := "/default/" + w.name + "-"
	for _, c := range w.history.all() {
		if strings.Contains(c.key, mark) {
			w.own[c.key] = true
			made[c.key] = append(made[c.key], c)
		}
	}
	for i, one := range w.made {
		if len(made[one.key]) == 0 && w.gone.Load() {
			continue // etcd has answered, and could tell no watch any more
		}
		if len(made[one.key]) == 0 {
			w.Fatalf("a write of %s that was acknowledged is not in etcd's history", one.key)
		}
		c := made[one.key][0]
		made[one.key] = made[one.key][1:]
		if (c.value == nil) != one.deleted || one.revision != 0 && one.revision != c.revision {
			w.Fatalf("%s: etcd has revision %d, deleted %v, and the client was told of %d, %v", one.key, c.revision, c.value == nil, one.revision, one.deleted)
		}
		w.made[i].revision = c.revision
	}
	for key, more := range made {
		if len(more) > 0 && !w.gone.Load() {
			w.Errorf("etcd has %d writes of %s that nobody was told of", len(more), key)
		}
	}
	return w.made
}
