package e2e

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/test/e2e/harness"
)

var bindingDeaths = flag.Int("binding-deaths", 2, "how often the leader is killed between a binding and what it binds; make long-scenarios: 10")

var bindings = schema.GroupVersionResource{Group: "apis.kcp.io", Version: "v1alpha2", Resource: "apibindings"}

// exported is a resource of group example.com that a cluster offers, for kubectl apply.
func exported(kind, plural string) string {
	return fmt.Sprintf(`
apiVersion: apis.kcp.io/v1alpha1
kind: APIResourceSchema
metadata: {name: v1.%[2]s.example.com}
spec:
  group: example.com
  names: {plural: %[2]s, kind: %[1]s, shortNames: [%[2]sx]}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      type: object
      properties:
        spec:
          type: object
          properties: {size: {type: integer, default: 3, description: How large it is.}}
          x-kubernetes-validations: [{rule: "self.size < 10", message: too large}]
---
apiVersion: apis.kcp.io/v1alpha2
kind: APIExport
metadata: {name: %[2]s}
spec:
  resources: [{group: example.com, name: %[2]s, schema: v1.%[2]s.example.com}]
`, kind, plural)
}

// bindingTo is what kubectl kcp bind apiexport sends.
func bindingTo(path, export string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": bindings.GroupVersion().String(), "kind": "APIBinding", "metadata": map[string]any{"name": export},
		"spec": map[string]any{"reference": map[string]any{"export": map[string]any{"path": path, "name": export}}},
	}}
}

func isBound(ctx context.Context, r *harness.Replica, cluster, name string) bool {
	b, err := r.Dynamic(cluster).Resource(bindings).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false
	}
	phase, _, _ := unstructured.NestedString(b.Object, "status", "phase")
	return phase == "Bound"
}

// What is bound is used as what is defined: by kubectl, on each replica.
func TestKubectlUsesWhatIsBound(t *testing.T) {
	etcd := harness.StartEtcd(t)
	shard := harness.NewShard(etcd.URL)
	a, b := shard.Start(t, "a"), shard.Start(t, "b")
	leader, _ := harness.Leader(t, a, b)
	leader.WaitRoot()
	a.CreateWorkspace("provider")
	a.CreateWorkspace("consumer")
	b.WaitWorkspace("provider")
	consumer := b.WaitWorkspace("consumer")
	must := func(r *harness.Replica, cluster, stdin string, args ...string) string {
		t.Helper()
		out, err := r.TryKubectl(cluster, stdin, args...)
		if err != nil {
			t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	must(a, "root:provider", exported("Widget", "widgets"), "apply", "-f", "-")
	if _, err := b.Dynamic("root:consumer").Resource(bindings).Create(t.Context(), bindingTo("root:provider", "widgets"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	must(b, "root:consumer", "", "wait", "--for=jsonpath={.status.phase}=Bound", "--timeout=60s", "apibinding/widgets")
	mustContain(t, must(b, "root:consumer", "", "get", "apibindings"), "widgets", "True")
	for _, r := range []*harness.Replica{a, b} {
		harness.Eventually(t, "discovery of "+r.Name()+" shows it", func() bool {
			return strings.Contains(must(r, "root:consumer", "", "api-resources", "--cached=false"), "widgetsx")
		})
		mustContain(t, must(r, "root:consumer", "", "explain", "widget.spec"), "How large it is.")
		must(r, "root:consumer", "{apiVersion: example.com/v1, kind: Widget, metadata: {name: of-"+r.Name()+"}, spec: {}}", "apply", "-f", "-")
		mustContain(t, must(r, "root:consumer", "", "get", "widgetsx", "of-"+r.Name(), "-o", "jsonpath={.spec.size}"), "3")
	}
	if out, err := a.TryKubectl("root:consumer", "{apiVersion: example.com/v1, kind: Widget, metadata: {name: large}, spec: {size: 12}}", "apply", "-f", "-"); err == nil || !strings.Contains(out, "too large") {
		t.Errorf("what the schema refuses: %v\n%s", err, out)
	}
	if out := must(a, "root:provider", "", "api-resources", "--cached=false"); strings.Contains(out, "widgetsx") {
		t.Errorf("who exports a resource does not have it:\n%s", out)
	}

	// The cluster that exports it goes, and the other one is not touched. Then that goes, too.
	must(a, "root", "", "delete", "workspace", "provider")
	must(b, "root:consumer", "{apiVersion: example.com/v1, kind: Widget, metadata: {name: later}, spec: {}}", "apply", "-f", "-")
	must(a, "root", "", "delete", "workspace", "consumer")
	left := func(below string) int {
		found, err := etcd.Client(t).Get(t.Context(), below, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		return int(found.Count)
	}
	if n := left("/registry/custom/" + consumer); n > 0 {
		t.Errorf("%d objects are left in etcd", n)
	}
	harness.Eventually(t, "nothing is left of the schema", func() bool { return left("/registry/apis.kcp.io/") == 0 })
}

// Whoever binds can use what is bound, though the leader dies right then: on each replica, at once, without sleeping.
func TestABindingIsBoundByTheNextLeader(t *testing.T) {
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	a, b := shard.Start(t, "a"), shard.Start(t, "b")
	leader, _ := harness.Leader(t, a, b)
	leader.WaitRoot()
	a.CreateWorkspace("provider")
	a.CreateWorkspace("consumer")
	b.WaitWorkspace("provider")
	consumer := b.WaitWorkspace("consumer")
	var took []time.Duration
	for n := range *bindingDeaths {
		leader, others := harness.Leader(t, a, b)
		left := others[0]
		harness.Eventually(t, "the standby hears the leader", left.Follows)
		plural, kind := fmt.Sprintf("widgets%d", n), fmt.Sprintf("Widget%d", n)
		if out, err := left.TryKubectl("root:provider", exported(kind, plural), "apply", "-f", "-"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		began := time.Now()
		if _, err := left.Dynamic(consumer).Resource(bindings).Create(t.Context(), bindingTo("root:provider", plural), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		leader.Kill()
		harness.Eventually(t, "it is bound", func() bool { return isBound(t.Context(), left, consumer, plural) })
		took = append(took, time.Since(began))
		resource := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: plural}
		if _, err := left.Dynamic(consumer).Resource(resource).Namespace("default").Create(t.Context(), customObject(kind, "x"), metav1.CreateOptions{}); err != nil {
			t.Errorf("creation right after it was bound: %v", err)
		}
		leader.Again()
		leader.WaitReady()
		if _, err := leader.Dynamic(consumer).Resource(resource).Namespace("default").Get(t.Context(), "x", metav1.GetOptions{}); err != nil {
			t.Errorf("through the replica that was killed: %v", err)
		}
		if err := left.Dynamic(consumer).Resource(bindings).Delete(t.Context(), plural, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "the binding goes", func() bool {
			_, err := left.Dynamic(consumer).Resource(bindings).Get(t.Context(), plural, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	}
	slices.Sort(took)
	t.Logf("from the binding to Bound by the next leader: median %v, longest %v, %d times", took[len(took)/2], took[len(took)-1], len(took))
}
