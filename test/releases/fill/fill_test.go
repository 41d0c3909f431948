package fill

import (
	"context"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/regent-project/regent/test/e2e/harness"
	"github.com/regent-project/regent/test/releases"
)

//go:embed objects
var objects embed.FS

// encryption has two resources, and the secret of the probe, encrypted in two ways, and custom objects of one kind.
const encryption = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers: [{secretbox: {keys: [{name: one, secret: a2V5IG9mIHRlc3RzIG9ubHksIDMyIGJ5dGVzIG9uZSE=}]}}, {identity: {}}]
- resources: [configmaps, widgets.example.com]
  providers: [{aescbc: {keys: [{name: two, secret: a2V5IG9mIHRlc3RzIG9ubHksIDMyIGJ5dGVzIHR3byE=}]}}, {identity: {}}]
`

// filled is a shard of the release.
type filled struct {
	*testing.T
	etcd     *harness.Etcd
	replicas []*harness.Replica
}

// What a release serves is in its data: an object of each resource, with all fields, but for those that it cannot have.
func TestAReleaseMakesItsData(t *testing.T) {
	f := &filled{T: t, etcd: harness.StartEtcdOf(t, harness.EtcdConfig{Members: 1})}
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(file, []byte(encryption), 0o600); err != nil {
		t.Fatal(err)
	}
	shard := releases.Shard(f.etcd, file)
	shard.Binary = harness.Binary(filepath.Join("releases", *release, "regent"))
	f.replicas = []*harness.Replica{shard.Start(t, "a"), shard.Start(t, "b")}
	f.replicas[0].WaitRoot()
	f.fill("root")
	f.waits("root", harness.Workspaces, "maker", "status.phase", "Ready")
	f.waits("root", harness.Workspaces, "user", "status.phase", "Ready")
	f.waits("root", harness.Workspaces, "going", "status.phase", "Ready")
	f.fill("maker")
	f.fill("user")
	f.waits("root:user", harness.Workspaces, "nested", "status.phase", "Ready")
	f.delete("root", harness.Workspaces, "", "going")
	core := schema.GroupVersion{Version: "v1"}
	f.delete("root:user", core.WithResource("configmaps"), "shop", "going")
	f.delete("root:user", core.WithResource("namespaces"), "", "going")
	f.owned()
	f.lead()
	f.rests()

	served, empty, err := releases.Serves(t.Context(), f.replicas[0].AdminConfig)
	if err != nil {
		t.Fatal(err)
	}
	if len(empty) > 0 {
		t.Errorf("the release serves %q, and there is no object of it: write one in objects", empty)
	}
	f.hasFields(served)
	_, answer := f.replicas[0].Get("/regent/v1/terms")
	terms, err := releases.Terms(answer)
	if err != nil || len(terms) != 4 {
		t.Errorf("the release tells of the terms %v, want four: %v", terms, err)
	}
	for _, r := range f.replicas {
		r.Signal(syscall.SIGTERM)
	}
	for _, r := range f.replicas {
		if code := r.Wait(); code != 0 {
			t.Errorf("%s ended with %d", r.Name(), code)
		}
	}
	data := &releases.Data{Version: *release, Snapshot: releases.Snapshot(t, f.etcd), Served: served, Terms: terms, Keys: filepath.Join(f.replicas[0].Root, "pki"), Encryption: file}
	if t.Failed() {
		return
	}
	if err := data.Write(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d objects, the snapshot has %d bytes", len(served), len(data.Snapshot))
}

// fill makes what objects has for a cluster: root, or a workspace in it.
func (f *filled) fill(cluster string) {
	f.Helper()
	content, err := objects.ReadFile("objects/" + cluster + ".yaml")
	if err != nil {
		f.Fatal(err)
	}
	if cluster != "root" {
		cluster = "root:" + cluster
	}
	ca, err := os.ReadFile(filepath.Join(f.replicas[0].Root, "pki", "ca.crt"))
	if err != nil {
		f.Fatal(err)
	}
	whole := strings.ReplaceAll(string(content), "$CA", base64.StdEncoding.EncodeToString(ca))
	for _, text := range strings.Split(whole, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
			f.Fatalf("%v in\n%s", err, text)
		}
		f.make(cluster, object)
	}
}

// make makes an object by one name, and writes to it by another, so that there are managed fields of several kinds.
func (f *filled) make(cluster string, object *unstructured.Unstructured) {
	f.Helper()
	config := f.replicas[0].AdminConfig(cluster)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		f.Fatal(err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		f.Fatal(err)
	}
	var resource metav1.APIResource
	subresources := map[string]bool{}
	what := fmt.Sprintf("%s %s in %s", object.GroupVersionKind(), object.GetName(), cluster)
	harness.Eventually(f, what+" is served", func() bool {
		list, err := disco.ServerResourcesForGroupVersion(object.GetAPIVersion())
		if err != nil {
			return false
		}
		for _, r := range list.APIResources {
			if name, sub, ok := strings.Cut(r.Name, "/"); ok {
				subresources[name+" "+sub] = true
			} else if r.Kind == object.GetKind() {
				resource = r
			}
		}
		return resource.Name != ""
	})
	var of dynamic.ResourceInterface = client.Resource(object.GroupVersionKind().GroupVersion().WithResource(resource.Name))
	if resource.Namespaced {
		of = client.Resource(object.GroupVersionKind().GroupVersion().WithResource(resource.Name)).Namespace(object.GetNamespace())
	}
	var last error
	defer func() {
		if f.Failed() {
			f.Logf("%s: %v", what, last)
		}
	}()
	harness.EventuallyIn(f, 10*time.Second, what+" is made", func() bool {
		_, last = of.Create(f.Context(), object, metav1.CreateOptions{FieldManager: "creates"})
		return last == nil
	})
	if status, ok := object.Object["status"]; ok && subresources[resource.Name+" status"] {
		f.patch(of, object.GetName(), types.MergePatchType, map[string]any{"status": status}, "reports", "status")
	}
	f.patch(of, object.GetName(), types.ApplyPatchType, map[string]any{
		"apiVersion": object.GetAPIVersion(), "kind": object.GetKind(), "metadata": map[string]any{"name": object.GetName(), "annotations": map[string]any{"example.com/applied": "yes"}},
	}, "applies")
}

func (f *filled) patch(of dynamic.ResourceInterface, name string, kind types.PatchType, patch map[string]any, manager string, subresource ...string) {
	f.Helper()
	body, err := json.Marshal(patch)
	if err != nil {
		f.Fatal(err)
	}
	if _, err := of.Patch(f.Context(), name, kind, body, metav1.PatchOptions{FieldManager: manager}, subresource...); err != nil {
		f.Fatal(err)
	}
}

func (f *filled) client(cluster string) dynamic.Interface {
	f.Helper()
	client, err := dynamic.NewForConfig(f.replicas[0].AdminConfig(cluster))
	if err != nil {
		f.Fatal(err)
	}
	return client
}

// waits waits until a field of an object has a value.
func (f *filled) waits(cluster string, of schema.GroupVersionResource, name, field, value string) {
	f.Helper()
	client := f.client(cluster)
	harness.Eventually(f, fmt.Sprintf("%s of %s is %s", field, name, value), func() bool {
		object, err := client.Resource(of).Get(f.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		is, _, _ := unstructured.NestedString(object.Object, strings.Split(field, ".")...)
		return is == value
	})
}

// delete deletes an object that stays, because of a finalizer of it or in it.
func (f *filled) delete(cluster string, of schema.GroupVersionResource, namespace, name string) {
	f.Helper()
	client := dynamic.ResourceInterface(f.client(cluster).Resource(of))
	if namespace != "" {
		client = f.client(cluster).Resource(of).Namespace(namespace)
	}
	if err := client.Delete(f.Context(), name, metav1.DeleteOptions{}); err != nil {
		f.Fatal(err)
	}
	object, err := client.Get(f.Context(), name, metav1.GetOptions{})
	if err != nil || object.GetDeletionTimestamp() == nil {
		f.Fatalf("%s is not being deleted: %v, %v", name, object, err)
	}
}

// owned makes an object that others own.
func (f *filled) owned() {
	f.Helper()
	client := f.client("root:user").Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("shop")
	owner, err := client.Get(f.Context(), "all", metav1.GetOptions{})
	if err != nil {
		f.Fatal(err)
	}
	f.make("root:user", &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"a": "b"},
		"metadata": map[string]any{"generateName": "owned-", "name": "owned", "namespace": "shop", "ownerReferences": []any{map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "name": "all", "uid": string(owner.GetUID()), "controller": true, "blockOwnerDeletion": true,
		}}},
	}})
}

// lead has leadership change: by a request, by a death, by an end in order.
func (f *filled) lead() {
	f.Helper()
	leader, others := harness.Leader(f, f.replicas...)
	harness.Eventually(f, "the standby hears the leader", others[0].Follows)
	leader.StepDown("for its record")
	harness.Eventually(f, "another leads", others[0].Leads)
	harness.Eventually(f, "the standby hears the leader", leader.Follows)
	others[0].Kill()
	harness.Eventually(f, "another leads", leader.Leads)
	others[0].Again()
	others[0].WaitReady()
	harness.Eventually(f, "the standby hears the leader", others[0].Follows)
	leader.Signal(syscall.SIGTERM)
	if code := leader.Wait(); code != 0 {
		f.Errorf("the leader ended with %d", code)
	}
	harness.Eventually(f, "another leads", others[0].Leads)
	leader.Again()
	leader.WaitReady()
	f.replicas = []*harness.Replica{others[0], leader}
}

// rests waits until nothing has been written for a while but the renewals of leases: what is left to do is not part of
// what the release stores.
func (f *filled) rests() {
	f.Helper()
	client := f.etcd.Client(f)
	var last map[string]int64
	since := time.Now()
	harness.Eventually(f, "nothing is left to do", func() bool {
		now := f.revisions(f.Context(), client)
		if !maps.Equal(now, last) {
			last, since = now, time.Now()
		}
		// leaders write their record 10 s after they began, at the latest
		return time.Since(since) > 12*time.Second
	})
}

// revisions returns those at which each key was written last that is no Lease.
func (f *filled) revisions(ctx context.Context, client *clientv3.Client) map[string]int64 {
	f.Helper()
	resp, err := client.Get(ctx, releases.Prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		f.Fatal(err)
	}
	out := map[string]int64{}
	for _, kv := range resp.Kvs {
		if key := string(kv.Key); !strings.Contains(key, "/leases/system:admin/") {
			out[key] = kv.ModRevision
		}
	}
	return out
}
