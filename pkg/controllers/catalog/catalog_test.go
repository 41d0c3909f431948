package catalog

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/bootstrap"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
	"github.com/regent-project/regent/pkg/election/fence"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(
		m,
		// Upstream's: a read that waits for a watch cache, and the timer it has, outlive their request for up
		// to 3 s.
		goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked"),
		goleak.IgnoreTopFunction("k8s.io/apiserver/pkg/server/filters.(*timeoutHandler).ServeHTTP.func2.1"),
		goleak.IgnoreTopFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"),
		// Upstream's: such a read does not heed the end of its context, whoever makes it: a store that counts
		// its objects, or a request whose client has gone, for which the filter that bounds requests waits.
		goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked"),
		goleak.IgnoreTopFunction("k8s.io/apiserver/pkg/server/filters.(*timeoutHandler).ServeHTTP.func2.1"),
		// Upstream's: flushes the log for as long as the process lives.
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
	)
}

func TestEveryControllerIsInTheCatalog(t *testing.T) {
	listed := map[string]bool{}
	ast.Inspect(parse(t, "catalog.go"), func(n ast.Node) bool {
		if call, ok := n.(*ast.SelectorExpr); ok && call.Sel.Name == "Descriptor" {
			listed[call.X.(*ast.Ident).Name] = true
		}
		return true
	})
	files, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range files {
		file := parse(t, name)
		if !slices.ContainsFunc(file.Decls, isDescriptor) {
			continue
		}
		found++
		if !listed[file.Name.Name] {
			t.Errorf("pkg/controllers/%s has a Descriptor, and the catalog does not list it: no replica would run it", filepath.Base(filepath.Dir(name)))
		}
	}
	if found < len(listed) {
		t.Errorf("found %d controllers below pkg/controllers, and the catalog lists %d", found, len(listed))
	}
}

func isDescriptor(d ast.Decl) bool {
	f, ok := d.(*ast.FuncDecl)
	return ok && f.Recv == nil && f.Name.Name == "Descriptor"
}

func parse(t *testing.T, name string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// But those who elect: there may be no leader to do it before they have.
func TestEveryControllerWaitsForBootstrap(t *testing.T) {
	registry, err := Registry()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range registry.Scoped(controllers.LeaderOnly) {
		if d.Name != bootstrap.Name && !slices.Contains(d.Needs, bootstrap.Name) {
			t.Errorf("%s would start before there is a root", d.Name)
		}
	}
}

func TestEveryControllerKeepsTheContractWhileTheStoreCannotBeReached(t *testing.T) {
	registry, err := Registry()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range registry.Scoped(controllers.LeaderOnly, controllers.Electing) {
		t.Run(d.Name, func(t *testing.T) { new(controllertest.Server).Check(t, d, unreachable) })
	}
}

func TestBootstrapIsNotReadyWhileTheStoreCannotBeReached(t *testing.T) {
	c, err := bootstrap.Descriptor().New(t.Context(), unreachable(t))
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.(controllers.Readier).Ready():
		t.Error("ready before it ran")
	default:
	}
}

// unreachable has informers that hold something to do for everybody, and clients of which every call fails.
func unreachable(t *testing.T) controllers.Deps {
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	accounts := schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	now := metav1.Unix(1000, 0)
	in := func(cluster, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Annotations: map[string]string{"kcp.io/cluster": cluster}}
	}
	going := in("x7", "cluster")
	going.DeletionTimestamp, going.Finalizers = &now, []string{"regent.dev/content"}
	terminating := in("root", "n")
	terminating.DeletionTimestamp = &now
	orphaned := in("root", "s")
	orphaned.Namespace, orphaned.OwnerReferences = "n", []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "o", UID: "u"}}
	wanting := in("root", "c")
	wanting.Namespace = metav1.NamespaceDefault
	assigned := in("w7", "elsewhere")
	assigned.Labels = map[string]string{clusters.ShardLabel: "here"}
	undecided := controllertest.Definition("root", "example.com", "Widget", apiextensionsv1.ClusterScoped)
	undecided.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	leaving := controllertest.Definition("root", "example.com", "Gadget", apiextensionsv1.NamespaceScoped)
	leaving.DeletionTimestamp, leaving.Finalizers = &now, []string{apiextensionsv1.CustomResourceCleanupFinalizer}
	others := controllers.NewShards("here", away{})
	others.Workspaces.Add("there", controllertest.Informer(t, controllertest.NewSource(&tenancyv1alpha1.Workspace{
		ObjectMeta: assigned, Spec: tenancyv1alpha1.WorkspaceSpec{Cluster: "v7"},
	}), nil))
	others.Contact.Set("there", true)
	return controllers.Deps{
		Shard: "here", Shards: others, RootCA: "some authority",
		Clients: new(controllertest.Server).Clients(t, fence.Token{}),
		Informers: controllertest.WithCustom(t, controllers.Informers{
			Namespaces: controllertest.Informer(t, controllertest.NewSource(&corev1.Namespace{
				ObjectMeta: terminating, Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
			}, &corev1.Namespace{ObjectMeta: in("root", "living")}), nil),
			Workspaces: controllertest.Informer(t, controllertest.NewSource(&tenancyv1alpha1.Workspace{
				ObjectMeta: in("root", "a"), Spec: tenancyv1alpha1.WorkspaceSpec{Cluster: "y7"},
			}), nil),
			LogicalClusters: controllertest.Informer(t, controllertest.NewSource(
				&corev1alpha1.LogicalCluster{ObjectMeta: going}, &corev1alpha1.LogicalCluster{ObjectMeta: in("z7", "cluster")},
			), clusters.AssignedIndexers()),
			Shards: controllertest.Informer(t, controllertest.NewSource(&corev1alpha1.Shard{ObjectMeta: in("root", "new")}), nil),
			ClusterRoles: controllertest.Informer(t, controllertest.NewSource(&rbacv1.ClusterRole{
				ObjectMeta: in("root", "all"), AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{}}},
			}, &rbacv1.ClusterRole{ObjectMeta: in("root", "part"), Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/x"}}}}), controllers.ClusterRoleIndexers()),
			ConfigMaps: controllertest.Informer(t, controllertest.NewSource[*corev1.ConfigMap](), nil),
			Leases:     controllertest.Informer(t, controllertest.NewSource[*coordinationv1.Lease](), nil),
			LeaseCandidates: controllertest.Informer(t, controllertest.NewSource(&coordinationv1beta1.LeaseCandidate{
				ObjectMeta: wanting, Spec: coordinationv1beta1.LeaseCandidateSpec{
					LeaseName: "work", BinaryVersion: "1.37.0", EmulationVersion: "1.37.0", Strategy: coordinationv1.OldestEmulationVersion,
				},
			}), controllers.CandidateIndexers()),
			Metadata: map[schema.GroupVersionResource]clusters.Cache[*metav1.PartialObjectMetadata]{
				namespaces: controllertest.Informer(t, controllertest.NewSource(&metav1.PartialObjectMetadata{ObjectMeta: terminating}), controllers.OwnerIndexers[*metav1.PartialObjectMetadata]()),
				accounts:   controllertest.Informer(t, controllertest.NewSource[*metav1.PartialObjectMetadata](), controllers.OwnerIndexers[*metav1.PartialObjectMetadata]()),
				secrets:    controllertest.Informer(t, controllertest.NewSource(&metav1.PartialObjectMetadata{ObjectMeta: orphaned}), controllers.OwnerIndexers[*metav1.PartialObjectMetadata]()),
			},
		}, controllertest.NewSource(undecided, leaving), controllertest.NewSource(&clusters.CustomObject{
			TypeMeta: metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Gadget"}, ObjectMeta: orphaned,
		})),
		Resources: []controllers.Resource{{GVR: namespaces, Kind: "Namespace"}, {GVR: secrets, Kind: "Secret", Namespaced: true}},
	}
}

// away is a shard that does not answer.
type away struct{}

func (away) Workspace(context.Context, string, clusters.Key) (*tenancyv1alpha1.Workspace, error) {
	return nil, errors.New("connection refused")
}

func (away) LogicalCluster(context.Context, string, logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	return nil, errors.New("connection refused")
}
