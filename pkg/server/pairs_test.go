package server

import (
	"context"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/test/etcdtest"
)

// pairing is a shard, and what its etcd has.
type pairing struct {
	*operator
	etcd *clientv3.Client
}

func startPairing(t *testing.T, prepare ...func(*Server)) *pairing {
	t.Helper()
	way := etcdtest.Start(t)
	at := startCatalogued(t, t.TempDir(), way, prepare...)
	p := &pairing{&operator{t, at}, etcdtest.Client(t, way)}
	p.until("root is Ready", func() bool { return at.phase("root") == "Ready" })
	return p
}

// stored returns the keys that have a text.
func (p *pairing) stored(text string) (keys []string) {
	p.Helper()
	for _, kv := range must(p.etcd.Get(p.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly()))(p.operator).Kvs {
		if strings.Contains(string(kv.Key), text) {
			keys = append(keys, string(kv.Key))
		}
	}
	return keys
}

// clusters returns the logical clusters that workspaces have.
func (p *pairing) clusters() (all []string) {
	for _, key := range p.stored("/core.kcp.io/logicalclusters/") {
		if cluster := strings.Split(key, "/")[4]; !clusters.IsPermanent(logicalcluster.Name(cluster)) && !clusters.IsSystem(logicalcluster.Name(cluster)) {
			all = append(all, cluster)
		}
	}
	return all
}

// However a Workspace is created, it becomes Ready, with one logical cluster. If it is refused, there is none.
func TestAWorkspaceThatIsCreatedHasOneLogicalCluster(t *testing.T) {
	p := startPairing(t)
	client := p.at.shard.Clients.Workspaces
	root := in(p.operator, "root")
	named := func(name string) *tenancyv1alpha1.Workspace {
		return &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	p.create("there")
	p.ready("there")
	for how, c := range map[string]struct {
		create  func() (*tenancyv1alpha1.Workspace, error)
		refused func(error) bool
	}{
		"create": {create: func() (*tenancyv1alpha1.Workspace, error) {
			return client.Create(root, named("created"), metav1.CreateOptions{})
		}},
		"create, and the server names it": {create: func() (*tenancyv1alpha1.Workspace, error) {
			return client.Create(root, &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{GenerateName: "made-"}}, metav1.CreateOptions{})
		}},
		"apply": {create: func() (*tenancyv1alpha1.Workspace, error) {
			patch := []byte(`{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"applied"}}`)
			return client.Patch(root, "applied", types.ApplyPatchType, patch, metav1.PatchOptions{FieldManager: "test"})
		}},
		"create, with a finalizer": {create: func() (*tenancyv1alpha1.Workspace, error) {
			ws := named("held")
			ws.Finalizers = []string{"example.com/held"}
			return client.Create(root, ws, metav1.CreateOptions{})
		}},
		"a name that is taken": {refused: apierrors.IsAlreadyExists, create: func() (*tenancyv1alpha1.Workspace, error) {
			return client.Create(root, named("there"), metav1.CreateOptions{})
		}},
		"a name that is none": {refused: apierrors.IsInvalid, create: func() (*tenancyv1alpha1.Workspace, error) {
			return client.Create(root, named("A_b"), metav1.CreateOptions{})
		}},
		"a dry run": {refused: func(err error) bool { return err == nil }, create: func() (*tenancyv1alpha1.Workspace, error) {
			return client.Create(root, named("tried"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		}},
	} {
		t.Run(how, func(t *testing.T) {
			before := len(p.clusters())
			ws, err := c.create()
			if c.refused != nil {
				if !c.refused(err) {
					t.Errorf("answer: %v", err)
				}
				if after := p.clusters(); len(after) != before {
					t.Errorf("there are logical clusters %v, %d before", after, before)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			cluster := p.ready(ws.Name)
			if after := p.clusters(); len(after) != before+1 || len(p.stored("/"+cluster+"/")) != 1 {
				t.Errorf("there are logical clusters %v, %d before, and of %s: %v", after, before, cluster, p.stored("/"+cluster+"/"))
			}
			lc := must(p.at.shard.Clients.LogicalClusters.Get(in(p.operator, cluster), corev1alpha1.LogicalClusterName, metav1.GetOptions{}))(p.operator)
			if now := p.get(ws.Name); lc.Spec.Owner.UID != now.UID || lc.UID == "" || lc.CreationTimestamp.IsZero() || lc.Generation != 1 {
				t.Errorf("LogicalCluster %+v", lc)
			}
			// It can be written to at once.
			must(p.at.shard.Clients.Kube.CoreV1().ConfigMaps("default").Create(in(p.operator, cluster), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "first"}}, metav1.CreateOptions{}))(p.operator)
		})
	}
}

// However a Workspace is deleted, and whatever it holds, it goes with all that it holds, and not before that may go.
func TestAWorkspaceThatIsDeletedLeavesNothing(t *testing.T) {
	p := startPairing(t)
	kube, client, root := p.at.shard.Clients.Kube, p.at.shard.Clients.Workspaces, in(p.operator, "root")
	plain := func(name string) error { return client.Delete(root, name, metav1.DeleteOptions{}) }
	with := func(options metav1.DeleteOptions) func(string) error {
		return func(name string) error { return client.Delete(root, name, options) }
	}
	number := 0
	for what, c := range map[string]struct {
		hold   func(ctx context.Context, name string) error
		delete func(name string) error
		// refused says that nothing happens, held that it waits until it is let go.
		refused func(error) bool
		let     func(ctx context.Context, name string) error
	}{
		"nothing":           {delete: plain},
		"in the foreground": {delete: with(metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)})},
		"leaving orphans":   {delete: with(metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)})},
		"a dry run":         {delete: with(metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}), refused: func(err error) bool { return err == nil }},
		"another uid":       {delete: with(metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(types.UID("another"))}}), refused: apierrors.IsConflict},
		"another version":   {delete: with(metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: ptr.To("1")}}), refused: apierrors.IsConflict},
		"with all others, too": {delete: func(name string) error {
			return client.DeleteCollection(root, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		}},
		"a ConfigMap": {delete: plain, hold: func(ctx context.Context, _ string) error {
			_, err := kube.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
			return err
		}},
		"an Event, of which nobody counts how many there are": {delete: plain, hold: func(ctx context.Context, _ string) error {
			_, err := kube.CoreV1().Events("default").Create(ctx, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "a"}, InvolvedObject: corev1.ObjectReference{Namespace: "default", Name: "a", Kind: "ConfigMap"}}, metav1.CreateOptions{})
			return err
		}},
		"what was built in": {delete: plain, hold: func(ctx context.Context, _ string) error {
			_, err := kube.CoreV1().Namespaces().Patch(ctx, "default", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
			return err
		}},
		"another workspace": {delete: plain, hold: func(ctx context.Context, _ string) error {
			_, err := client.Create(ctx, &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "child"}}, metav1.CreateOptions{})
			return err
		}},
		"a finalizer of its own": {
			delete: plain,
			hold: func(_ context.Context, name string) error {
				_, err := client.Patch(root, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":["core.kcp.io/logicalcluster","example.com/held"]}}`), metav1.PatchOptions{})
				return err
			},
			let: func(_ context.Context, name string) error {
				_, err := client.Patch(root, name, types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{})
				return err
			},
		},
		"a finalizer of its cluster": {
			delete: plain,
			hold: func(ctx context.Context, _ string) error {
				_, err := p.at.shard.Clients.LogicalClusters.Patch(ctx, "cluster", types.MergePatchType, []byte(`{"metadata":{"finalizers":["regent.dev/content","example.com/held"]}}`), metav1.PatchOptions{})
				return err
			},
			let: func(ctx context.Context, _ string) error {
				_, err := p.at.shard.Clients.LogicalClusters.Patch(ctx, "cluster", types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{})
				return err
			},
		},
	} {
		number++
		name := fmt.Sprintf("w%d", number)
		t.Run(what, func(t *testing.T) {
			p.create(name)
			cluster := p.ready(name)
			inside := in(p.operator, cluster)
			if c.hold != nil {
				must(0, c.hold(inside, name))(p.operator)
			}
			err := c.delete(name)
			if c.refused != nil {
				if !c.refused(err) {
					t.Errorf("answer: %v", err)
				}
				if ws := p.get(name); ws.DeletionTimestamp != nil || len(p.stored("/"+cluster+"/")) != 1 {
					t.Errorf("it is not as before: %+v, %v", ws, p.stored("/"+cluster+"/"))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.let != nil {
				if ws := p.get(name); ws.DeletionTimestamp == nil || len(p.stored("/logicalclusters/"+cluster+"/")) != 1 {
					t.Errorf("it does not wait: %+v, %v", ws, p.stored("/"+cluster+"/"))
				}
				p.until("its content has gone", func() bool {
					lc, err := p.at.shard.Clients.LogicalClusters.Get(inside, "cluster", metav1.GetOptions{})
					return apierrors.IsNotFound(err) || err == nil && len(lc.Finalizers) <= 1
				})
				p.until("it is let go", func() bool { return c.let(inside, name) == nil })
			}
			p.until("nothing is left", func() bool { return len(p.stored("/"+cluster+"/"))+len(p.stored("/workspaces/root/"+name)) == 0 })
		})
	}
	if all := p.clusters(); len(all) != 3 {
		t.Errorf("logical clusters %v are there, and three deletions were refused", all)
	}
}

// What is written together is encrypted as what is written alone, each by its own key in etcd.
func TestAWorkspaceAndItsLogicalClusterAreEncrypted(t *testing.T) {
	root, way := t.TempDir(), etcdtest.Start(t)
	start := func() *pairing {
		cfg := withController(t, config(t, root), nil)
		cfg.EmbeddedEtcd, cfg.Etcd = nil, way
		cfg.EncryptionConfigFile = write(t, filepath.Join(root, "encryption.yaml"), fmt.Sprintf(
			`{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [{"resources": ["workspaces.tenancy.kcp.io", "logicalclusters.core.kcp.io"], "providers": [{"aescbc": {"keys": [{"name": "one", "secret": %q}]}}]}]}`,
			base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))))
		at := catalogue(t, cfg)
		p := &pairing{&operator{t, at}, etcdtest.Client(t, way)}
		p.until("root is Ready", func() bool { return at.phase("root") == "Ready" })
		return p
	}
	p := start()
	p.create("a")
	cluster := p.ready("a")
	for _, key := range append(p.stored("/workspaces/root/a"), p.stored("/"+cluster+"/")...) {
		kv := must(p.etcd.Get(t.Context(), key))(p.operator).Kvs[0]
		if !strings.HasPrefix(string(kv.Value), "k8s:enc:aescbc:v1:one:") {
			t.Errorf("%s is stored as %.60q", key, kv.Value)
		}
	}
	if err := p.at.stop(t); err != nil {
		t.Fatal(err)
	}
	p = start() // which reads both from etcd
	p.ready("a")
	p.delete("a")
	p.until("nothing is left", func() bool { return len(p.stored("/"+cluster+"/"))+len(p.stored("/workspaces/root/a")) == 0 })
}
