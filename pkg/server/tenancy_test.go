package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	authenticatorunion "k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/test/etcdtest"
)

var (
	workspacesGVR      = tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces")
	logicalClustersGVR = corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")
)

// withUsers makes a server know a plain member of system:masters and a tenant, by the tokens "master" and "tenant", and
// lets the tenant do everything in every cluster: what it is refused then, no rights can give it.
func withUsers(s *Server) {
	known := authenticatorfactory.NewFromTokens(map[string]*user.DefaultInfo{
		"master": {Name: "plain-master", Groups: []string{user.SystemPrivilegedGroup}},
		"tenant": {Name: "tenant"},
	}, nil)
	s.generic.Authentication.Authenticator = authenticatorunion.New(known, s.generic.Authentication.Authenticator)
	stock := s.generic.Authorization.Authorizer
	s.generic.Authorization.Authorizer = authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == "tenant" {
			return authorizer.DecisionAllow, "", nil
		}
		return stock.Authorize(ctx, a)
	})
}

// users returns clients, by whose they are, for the logical cluster in each context.
func (r *replica) users(t *testing.T) map[string]dynamic.Interface {
	t.Helper()
	out := map[string]dynamic.Interface{}
	for who, config := range map[string]*rest.Config{
		"the admin": r.adminConfig(t, ""), "a master": r.configOf(t, "master", ""), "a tenant": r.configOf(t, "tenant", ""),
	} {
		config.Wrap(clusters.Transport)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return onlyOnce{next} })
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		out[who] = client
	}
	return out
}

// onlyOnce keeps client-go from trying again what was refused: ten times, a second each.
type onlyOnce struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (o onlyOnce) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := o.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.Header.Del("Retry-After")
	}
	return resp, err
}

func (u *operator) rootIsReady() bool {
	lc, err := u.at.shard.Clients.LogicalClusters.Get(in(u, "root"), "cluster", metav1.GetOptions{})
	return err == nil && lc.Status.Phase == corev1alpha1.LogicalClusterPhaseReady
}

// forged is a LogicalCluster that says that a workspace of root owns it.
func forged(victim *tenancyv1alpha1.Workspace) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster", "metadata": map[string]any{"name": "cluster"},
		"spec": map[string]any{"owner": map[string]any{
			"apiVersion": "tenancy.kcp.io/v1alpha1", "resource": "workspaces", "cluster": "root", "name": victim.Name, "uid": string(victim.UID),
		}},
	}}
}

// Whoever may do everything in a cluster of its own deletes it, and makes another one in its place, whose deletion is
// to take a victim's workspace along.
func TestNobodyDeletesAWorkspaceByAForgedOwner(t *testing.T) {
	c := startCatalogued(t, t.TempDir(), etcdtest.Start(t), withUsers)
	u := &operator{t, c}
	u.until("root is Ready", u.rootIsReady)
	u.create("victim")
	u.ready("victim")
	victim := u.get("victim")
	for who, client := range c.users(t) {
		own := "of-" + strings.ReplaceAll(who, " ", "-")
		u.create(own)
		within := in(u, u.ready(own))
		logicalClusters := client.Resource(logicalClustersGVR)
		for _, subresource := range [][]string{nil, {"status"}} {
			_, err := logicalClusters.Patch(within, "cluster", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}, subresource...)
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "regent.dev/content") {
				t.Errorf("%s takes the finalizer off, by %q: %v", who, subresource, err)
			}
		}
		if err := logicalClusters.Delete(within, "cluster", metav1.DeleteOptions{}); err != nil {
			t.Fatalf("%s cannot delete the cluster: %v", who, err)
		}
		u.until("the workspace of "+who+" has gone", func() bool {
			_, err := logicalClusters.Create(within, forged(victim), metav1.CreateOptions{})
			if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
				t.Fatalf("%s forges an owner: %v", who, err)
			}
			_, err = c.shard.Clients.Workspaces.Get(in(u, "root"), own, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	}
	if now := u.get("victim"); now.UID != victim.UID || now.DeletionTimestamp != nil {
		t.Errorf("the victim's workspace was deleted: %+v", now.ObjectMeta)
	}
}

// attempt is a write of a user's to the workspace w of root, or in its cluster.
type attempt struct {
	name     string
	resource string
	do       func(ctx context.Context, to dynamic.ResourceInterface) error
	// refused is what the refusal names; empty: the write is allowed.
	refused string
}

func patching(kind types.PatchType, name, patch string, subresources ...string) func(context.Context, dynamic.ResourceInterface) error {
	return func(ctx context.Context, to dynamic.ResourceInterface) error {
		opts := metav1.PatchOptions{}
		if kind == types.ApplyPatchType {
			opts.FieldManager, opts.Force = "somebody", ptr.To(true)
		}
		_, err := to.Patch(ctx, name, kind, []byte(patch), opts, subresources...)
		return err
	}
}

func merging(name, patch string, subresources ...string) func(context.Context, dynamic.ResourceInterface) error {
	return patching(types.MergePatchType, name, patch, subresources...)
}

func creating(body string) func(context.Context, dynamic.ResourceInterface) error {
	return func(ctx context.Context, to dynamic.ResourceInterface) error {
		_, err := to.Create(ctx, &unstructured.Unstructured{Object: fromYAML(body)}, metav1.CreateOptions{})
		return err
	}
}

// rewriting puts an object back as it was got, main resource and status. The controllers may write it in between.
func rewriting(name string) func(context.Context, dynamic.ResourceInterface) error {
	return func(ctx context.Context, to dynamic.ResourceInterface) error {
		return retry.RetryOnConflict(retry.DefaultRetry, func() error {
			obj, err := to.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if obj, err = to.Update(ctx, obj, metav1.UpdateOptions{}); err != nil {
				return err
			}
			_, err = to.UpdateStatus(ctx, obj, metav1.UpdateOptions{})
			return err
		})
	}
}

// restoring creates an object again as it was got, but for its name and some fields.
func restoring(name string, without ...[]string) func(context.Context, dynamic.ResourceInterface) error {
	return func(ctx context.Context, to dynamic.ResourceInterface) error {
		obj, err := to.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		obj.SetName("")
		obj.SetGenerateName("restored-")
		for _, field := range without {
			unstructured.RemoveNestedField(obj.Object, field...)
		}
		_, err = to.Create(ctx, obj, metav1.CreateOptions{})
		return err
	}
}

const aWorkspace = "apiVersion: tenancy.kcp.io/v1alpha1, kind: Workspace, metadata: {name: x}"

// attempts are about the workspace w and its logical cluster. taken is the name of another one, which lives.
func attempts(taken string) []attempt {
	bound := func(spec string) string { return fmt.Sprintf("{%s, spec: {%s}}", aWorkspace, spec) }
	return []attempt{
		{"bind a new one to another's cluster", "workspaces", creating(bound("cluster: " + taken)), "spec.cluster"},
		{"bind a new one to a cluster that has gone", "workspaces", creating(bound("cluster: gonegonegonegone")), "spec.cluster"},
		{"bind a new one to `system`", "workspaces", creating(bound("cluster: system")), "spec.cluster"},
		{"bind a new one to `api`", "workspaces", creating(bound("cluster: api")), "spec.cluster"},
		{"bind a new one to `default`", "workspaces", creating(bound("cluster: default")), "spec.cluster"},
		{"lead a new one elsewhere", "workspaces", creating(bound("URL: 'https://elsewhere'")), "spec.URL"},
		{"apply a new one that is bound", "workspaces", patching(types.ApplyPatchType, "x", bound("cluster: "+taken)), "spec.cluster"},
		{"restore", "workspaces", restoring("w", []string{"metadata", "resourceVersion"}), "spec.cluster"},
		{"bind", "workspaces", merging("w", `{"spec":{"cluster":"`+taken+`"}}`), "cluster is immutable"},
		{"lead elsewhere", "workspaces", merging("w", `{"spec":{"URL":"https://elsewhere"}}`), "URL is immutable"},
		{"apply another URL", "workspaces", patching(types.ApplyPatchType, "w", strings.ReplaceAll(bound("URL: 'https://elsewhere'"), "name: x", "name: w")), "URL is immutable"},
		{"set a workspace's phase", "workspaces", merging("w", `{"status":{"phase":"Scheduling"}}`, "status"), "status.phase"},
		{"let a workspace go", "workspaces", merging("w", `{"metadata":{"finalizers":null}}`), "core.kcp.io/logicalcluster"},
		{"move a cluster", "logicalclusters", merging("cluster", `{"metadata":{"annotations":{"kcp.io/path":"root"}}}`), "kcp.io/path"},
		{"move a cluster by its status", "logicalclusters", merging("cluster", `{"metadata":{"annotations":{"kcp.io/path":"root"}}}`, "status"), "kcp.io/path"},
		{"lock a cluster", "logicalclusters", merging("cluster", `{"status":{"phase":"Unavailable"}}`, "status"), "status.phase"},
		{"apply a phase", "logicalclusters", patching(types.ApplyPatchType, "cluster", `{"apiVersion":"core.kcp.io/v1alpha1","kind":"LogicalCluster","metadata":{"name":"cluster"},"status":{"phase":"Deleting"}}`, "status"), "status.phase"},
		{"own a cluster", "logicalclusters", merging("cluster", `{"spec":{"owner":{"name":"other"}}}`), "owner is immutable"},
		{"disown a cluster", "logicalclusters", merging("cluster", `{"spec":{"owner":null}}`), "owner is immutable"},

		{"write a workspace as it stands", "workspaces", rewriting("w"), ""},
		{
			"restore as it is documented", "workspaces",
			restoring("w", []string{"spec", "cluster"}, []string{"spec", "URL"}, []string{"status"}, []string{"metadata", "resourceVersion"}), "",
		},
		{"label", "workspaces", merging("w", `{"metadata":{"labels":{"region":"here"}}}`), ""},
		{"apply a label", "workspaces", patching(types.ApplyPatchType, "w", strings.ReplaceAll("{"+aWorkspace+"}", "name: x", "name: w, labels: {a: b}")), ""},
		{"hold", "workspaces", merging("w", `{"metadata":{"finalizers":["core.kcp.io/logicalcluster","example.com/mine"]}}`), ""},
		{"hold no longer", "workspaces", merging("w", `{"metadata":{"finalizers":["core.kcp.io/logicalcluster"]}}`), ""},
		{"create", "workspaces", creating("{" + aWorkspace + "}"), ""},
		{"delete", "workspaces", func(ctx context.Context, to dynamic.ResourceInterface) error {
			return to.Delete(ctx, "x", metav1.DeleteOptions{})
		}, ""},
		{"write a cluster as it stands", "logicalclusters", rewriting("cluster"), ""},
		{"begin to initialize", "logicalclusters", merging("cluster", `{"status":{"initializers":["root:mine"]}}`, "status"), ""},
		{"have initialized", "logicalclusters", merging("cluster", `{"status":{"initializers":null}}`, "status"), ""},
	}
}

func TestWhatOthersRelyOnInWorkspacesIsForNobodyToForge(t *testing.T) {
	c := startCatalogued(t, t.TempDir(), etcdtest.Start(t), withUsers)
	u := &operator{t, c}
	u.until("root is Ready", u.rootIsReady)
	u.create("w", "other")
	cluster, other := u.ready("w"), u.ready("other")
	want := u.get("w")
	for who, client := range c.users(t) {
		for _, a := range attempts(other) {
			ctx, to := in(u, "root"), client.Resource(workspacesGVR)
			if a.resource == "logicalclusters" {
				ctx, to = in(u, cluster), client.Resource(logicalClustersGVR)
			}
			err := a.do(ctx, to)
			refused := apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
			if refused != (a.refused != "") || !refused && err != nil || refused && !strings.Contains(err.Error(), a.refused) {
				t.Errorf("%s: %s: got %v, want a refusal because of %q", who, a.name, err, a.refused)
			}
			if a.name == "delete" {
				u.until("the workspace of "+who+" has gone", func() bool {
					_, err := c.shard.Clients.Workspaces.Get(ctx, "x", metav1.GetOptions{})
					return apierrors.IsNotFound(err)
				})
			}
		}
		for _, cluster := range []logicalcluster.Name{"root", "system:admin", "system:x", logicalcluster.Name(other)} {
			_, err := client.Resource(logicalClustersGVR).Create(in(u, cluster.String()), forged(want), metav1.CreateOptions{})
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "create a Workspace") {
				t.Errorf("%s makes a LogicalCluster in %s: %v", who, cluster, err)
			}
		}
	}
	u.until("w stands as it did", func() bool {
		now := u.get("w")
		return now.Spec.Cluster == want.Spec.Cluster && now.Spec.URL == want.Spec.URL && now.Status.Phase == corev1alpha1.LogicalClusterPhaseReady
	})
	child := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "child"}}
	must(c.shard.Clients.Workspaces.Create(in(u, cluster), child, metav1.CreateOptions{}))(u)
	u.until("a child has its path below", func() bool {
		child := must(c.shard.Clients.Workspaces.Get(in(u, cluster), "child", metav1.GetOptions{}))(u)
		return child.Spec.URL == want.Spec.URL+":child"
	})
}

// An older version let everybody write phases.
func TestARootThatWasLockedIsOpenToMastersAndMendedByTheNextLeader(t *testing.T) {
	root, etcd := t.TempDir(), etcdtest.Start(t)
	cfg := config(t, root)
	cfg.EmbeddedEtcd, cfg.Etcd = nil, etcd
	r := startReplica(t, cfg, withUsers)
	r.untilReady(t)
	within := clusters.With(t.Context(), clusters.Root)
	leaders := r.dynamic(t, fence.Token{}).Resource(logicalClustersGVR)
	lc := &unstructured.Unstructured{Object: fromYAML("{apiVersion: core.kcp.io/v1alpha1, kind: LogicalCluster, metadata: {name: cluster}}")}
	if _, err := leaders.Create(within, lc, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	lock := func() {
		t.Helper()
		if _, err := leaders.Patch(within, "cluster", types.MergePatchType, []byte(`{"status":{"phase":"Unavailable"}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	lock()
	for who, client := range r.users(t) {
		workspaces := client.Resource(workspacesGVR)
		if _, err := workspaces.List(within, metav1.ListOptions{}); err != nil {
			t.Errorf("%s cannot read a root that is locked: %v", who, err)
		}
		name := strings.ReplaceAll(who, " ", "-")
		_, err := workspaces.Create(within, &unstructured.Unstructured{Object: fromYAML(strings.ReplaceAll("{"+aWorkspace+"}", "name: x", "name: "+name))}, metav1.CreateOptions{})
		if isTenant := who == "a tenant"; isTenant != apierrors.IsServiceUnavailable(err) || !isTenant && err != nil {
			t.Errorf("%s writes in a root that is locked: %v", who, err)
		}
	}
	if err := r.stop(t); err != nil {
		t.Errorf("Run returned %v", err)
	}

	c := startCatalogued(t, root, etcd, withUsers)
	u := &operator{t, c}
	u.until("the new leader has mended root", u.rootIsReady)
	stock := defaultElection()
	lease := must(c.adminIn(t, clusters.SystemAdmin).CoordinationV1().Leases(stock.Namespace).Get(t.Context(), stock.Name, metav1.GetOptions{}))(u)
	leaders = c.dynamic(t, fence.OfLease(lease)).Resource(logicalClustersGVR)
	lock()
	u.until("the leader mends root", u.rootIsReady)
}
