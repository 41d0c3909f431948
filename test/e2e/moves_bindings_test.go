package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/test/e2e/harness"
)

// Whatever of the two moves, who has bound an API and who offers it: the objects are served all the time, and what the
// owner changes arrives. Nothing is left of it when both have gone.
func TestABoundAPIIsServedWhereverItsWorkspacesMove(t *testing.T) {
	t.Parallel()
	i := harness.Install(t, "eu1", "us1")
	s := &sold{T: t, i: i, front: i.StartFront()}
	for _, name := range []string{"maker", "taker"} {
		create(t, []*harness.Front{s.front}, "root", name)
		awaitReady(t, []*harness.Front{s.front}, "root", name)
	}
	s.apply("root:maker", exported("Widget", "widgets"))
	if _, err := s.front.Dynamic("root:taker").Resource(bindings).Create(t.Context(), bindingTo("root:maker", "widgets"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "it is bound", func() bool { return s.binds("widgets") })
	stop := s.write()
	for n, of := range []string{"taker", "maker", "taker", "maker", "taker"} {
		before := s.home("root:" + of)
		to := s.next(before)
		s.regent("cluster", "move", "root:"+of, "--to="+to)
		s.await(5)
		s.offers([]string{"gadgets", "gizmos", "gears", "grids", "globes"}[n], fmt.Sprintf("%s has moved from %s to %s", of, before, to))
	}
	if s.home("root:maker") != "eu1" {
		s.regent("cluster", "move", "root:maker", "--to=eu1")
	}
	s.regent("shard", "drain", "eu1")
	harness.Eventually(t, "the shard is removed", func() bool {
		_, err := i.TryRegent("shard", "remove", "eu1")
		return err == nil
	})
	s.offers("gates", "the shard of the export was removed")
	s.await(5)
	stop()
	for _, name := range []string{"taker", "maker"} {
		if err := s.front.Dynamic("root").Resource(harness.Workspaces).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range i.All() {
		harness.Eventually(t, "shard "+m.Name+" has nothing of it any more", func() bool {
			found, err := m.Etcd.Client(t).Get(t.Context(), "/registry/apis.kcp.io/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			return err == nil && found.Count == 0
		})
	}
}

// sold is an API that root:maker offers, and root:taker has bound.
type sold struct {
	*testing.T
	i       *harness.Installation
	front   *harness.Front
	written chan struct{}
}

// apply creates objects.
func (s *sold) apply(cluster, text string) {
	s.Helper()
	for one := range strings.SplitSeq(text, "---\n") {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(one), obj); err != nil {
			s.Fatal(err)
		}
		plural := map[string]string{"APIResourceSchema": "apiresourceschemas", "APIExport": "apiexports"}[obj.GetKind()]
		at := obj.GroupVersionKind().GroupVersion().WithResource(plural)
		if _, err := s.front.Dynamic(cluster).Resource(at).Create(s.Context(), obj, metav1.CreateOptions{}); err != nil {
			s.Fatal(err)
		}
	}
}

func (s *sold) regent(args ...string) {
	s.Helper()
	if out, err := s.i.TryRegent(args...); err != nil {
		s.Fatalf("regent %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// offers has the export have one more resource, and waits until that is bound.
func (s *sold) offers(plural, after string) {
	s.Helper()
	s.apply("root:maker", strings.Split(exported("Of"+plural, plural), "---\n")[0])
	exports := s.front.Dynamic("root:maker").Resource(bindings.GroupVersion().WithResource("apiexports"))
	patch := fmt.Sprintf(`[{"op": "add", "path": "/spec/resources/-", "value": {"group": "example.com", "name": %q, "schema": "v1.%[1]s.example.com", "storage": {"crd": {}}}}]`, plural)
	if _, err := exports.Patch(s.Context(), "widgets", "application/json-patch+json", []byte(patch), metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
	harness.Eventually(s, fmt.Sprintf("after %s the binding names shard %s, and has %s", after, s.home("root:maker"), plural), func() bool { return s.binds(plural) })
}

// binds reports whether a resource is bound, and its binding says where its export is.
func (s *sold) binds(plural string) bool {
	b, err := s.front.Dynamic("root:taker").Resource(bindings).Get(s.Context(), "widgets", metav1.GetOptions{})
	if err != nil {
		return false
	}
	all, _, _ := unstructured.NestedSlice(b.Object, "status", "boundResources")
	at := s.home("root:maker")
	if at == s.home("root:taker") {
		at = ""
	}
	return b.GetAnnotations()[clusters.ExportShardAnnotation] == at && slices.ContainsFunc(all, func(one any) bool { return one.(map[string]any)["resource"] == plural })
}

// home returns the shard of a workspace.
func (s *sold) home(path string) string {
	s.Helper()
	ws, err := s.front.Dynamic("root").Resource(harness.Workspaces).Get(s.Context(), strings.TrimPrefix(path, "root:"), metav1.GetOptions{})
	if err != nil {
		s.Error(err)
		return ""
	}
	return clusters.ShardOf(ws, clusters.ShardLabel, "root")
}

func (s *sold) next(shard string) string {
	all := s.i.All()
	n := slices.IndexFunc(all, func(m *harness.ShardMember) bool { return m.Name == shard })
	return all[(n+1)%len(all)].Name
}

// write has clients write objects of what is bound until stop is called. None may be refused.
func (s *sold) write() (stop func()) {
	s.written = make(chan struct{}, 1)
	widgets := s.front.Dynamic("root:taker").Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).Namespace("default")
	return whileWriting(s.Context(), 2, func(w int) {
		if err := s.writeOne(widgets, fmt.Sprintf("widget-%d", w)); err != nil && s.Context().Err() == nil {
			s.Errorf("a write was refused: %v", err)
		}
		select {
		case s.written <- struct{}{}:
		default:
		}
	})
}

func (s *sold) writeOne(widgets dynamic.ResourceInterface, name string) error {
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name}, "spec": map[string]any{"size": int64(2)}}}
	_, err := widgets.Create(s.Context(), obj, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		err = widgets.Delete(s.Context(), name, metav1.DeleteOptions{})
	}
	return err
}

// await waits until clients have written so often more.
func (s *sold) await(n int) {
	s.Helper()
	for range n {
		select {
		case <-s.written:
		case <-s.Context().Done():
			s.Fatal("nobody writes any more")
		}
	}
}
