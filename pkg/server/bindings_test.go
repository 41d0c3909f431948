package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/election/fence"
)

var (
	schemasGVR  = apisv1alpha1.SchemeGroupVersion.WithResource("apiresourceschemas")
	exportsGVR  = apisv1alpha2.SchemeGroupVersion.WithResource("apiexports")
	bindingsGVR = apisv1alpha2.SchemeGroupVersion.WithResource("apibindings")
	parcels     = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "parcels"}
)

// trader is a user in one logical cluster.
type trader struct {
	*society
	client dynamic.Interface
}

func (s *society) trades(who, cluster string, change ...func(*rest.Config)) *trader {
	s.Helper()
	config := s.at.configOf(s.T, who, logicalcluster.Name(cluster))
	for _, f := range change {
		f(config)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		s.Fatal(err)
	}
	return &trader{s, client}
}

func (p *trader) create(gvr schema.GroupVersionResource, text string) (*unstructured.Unstructured, error) {
	p.Helper()
	obj := &unstructured.Unstructured{Object: fromYAML(text)}
	kinds := map[string]string{"apiresourceschemas": "APIResourceSchema", "apiexports": "APIExport", "apibindings": "APIBinding", "parcels": "Parcel"}
	obj.SetAPIVersion(gvr.GroupVersion().String())
	obj.SetKind(kinds[gvr.Resource])
	return p.client.Resource(gvr).Create(p.Context(), obj, metav1.CreateOptions{})
}

// exports offers parcels.
func (p *trader) exports() {
	p.Helper()
	for gvr, text := range map[schema.GroupVersionResource]string{
		schemasGVR: "{metadata: {name: v1.parcels.example.com}, spec: {group: example.com, scope: Cluster, names: {plural: parcels, kind: Parcel}, " +
			"versions: [{name: v1, served: true, storage: true, schema: {type: object, properties: {spec: {type: object, properties: {secretOfAnn: {type: integer}}}}}}]}}",
		exportsGVR: "{metadata: {name: parcels}, spec: {resources: [{name: parcels, group: example.com, schema: v1.parcels.example.com}]}}",
	} {
		if _, err := p.create(gvr, text); err != nil {
			p.Fatal(err)
		}
	}
}

// letBobBind has ann let bob bind the export parcels of a cluster.
func (s *society) letBobBind(cluster string) {
	s.Helper()
	rights := s.as("ann", cluster).RbacV1()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "binder"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"bind"}, APIGroups: []string{apisv1alpha2.SchemeGroupVersion.Group}, Resources: []string{"apiexports"}, ResourceNames: []string{"parcels"}},
	}}
	if _, err := rights.ClusterRoles().Create(s.Context(), role, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	if _, err := rights.ClusterRoleBindings().Create(s.Context(), toUser("binder", "binder", "bob"), metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

func bindingTo(path, export string) string {
	return fmt.Sprintf("{metadata: {name: %s}, spec: {reference: {export: {path: '%s', name: %s}}}}", export, path, export)
}

// A user who may impersonate somebody in one cluster has none of that one's rights in another: neither to bind what is
// exported there, nor to read its Leases by the refusal of a token.
func TestRightsElsewhereAreNotToBeHadByImpersonation(t *testing.T) {
	s := startSociety(t)
	provider, consumer := s.founds("ann", "provider"), s.founds("bob", "consumer")
	s.trades("ann", provider).exports()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("secret-holder")}}
	if _, err := s.as("ann", provider).CoordinationV1().Leases("default").Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"ann", "system:serviceaccount:default:default"} {
		binding := toUser("all-"+who[:3], "cluster-admin", who)
		if _, err := s.as("bob", consumer).RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	providerCluster := s.get("provider").Spec.Cluster
	said := map[string]bool{}
	for _, who := range []rest.ImpersonationConfig{
		{}, {UserName: "ann"}, {UserName: "nobody"},
		{UserName: "system:serviceaccount:default:default", Extra: map[string][]string{"authentication.kcp.io/cluster-name": {providerCluster}}},
	} {
		as := func(c *rest.Config) { c.Impersonate = who }
		if who.UserName == "ann" {
			s.until("ann may do everything in bob's cluster", func() bool {
				_, err := s.as("bob", consumer, as).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
				return err == nil
			})
			_, err := s.trades("bob", consumer, as).create(bindingsGVR, bindingTo(provider, "parcels"))
			s.refused("to bind as ann", err)
			_, err = s.trades("bob", consumer, as).create(bindingsGVR, bindingTo("root:nowhere", "parcels"))
			s.refused("to bind what is nowhere as ann", err)
		} else if _, err := s.trades("bob", consumer, as).create(bindingsGVR, bindingTo(provider, "parcels")); err == nil {
			t.Errorf("bound as %+v", who)
		}
		if who.UserName == "nobody" {
			continue
		}
		token := fmt.Sprintf("cluster=%q, lease=\"default/l\", uid=\"x\", holder=\"nobody\", epoch=1", providerCluster)
		fenced := func(c *rest.Config) {
			as(c)
			c.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return roundTrip(func(req *http.Request) (*http.Response, error) {
					req = req.Clone(req.Context())
					req.Header.Set(fence.Header, token)
					return next.RoundTrip(req)
				})
			})
		}
		_, err := s.as("bob", consumer, fenced).CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}, metav1.CreateOptions{})
		if err == nil || strings.Contains(err.Error(), "secret-holder") {
			t.Errorf("as %+v a stale token is answered with %v", who, err)
		}
		if who.Extra == nil {
			said[fmt.Sprint(err)] = true
		}
	}
	if len(said) != 1 {
		t.Errorf("the answers tell what ann may read: %v", said)
	}
}

func TestWhoeverMayBindAnExportBindsItAndNobodyElse(t *testing.T) {
	s := startSociety(t)
	provider, consumer := s.founds("ann", "provider"), s.founds("bob", "consumer")
	ann, bob := s.trades("ann", provider), s.trades("bob", consumer)
	ann.exports()

	// The answer is the same whether there is such an export, such a workspace, or neither.
	said := map[string]bool{}
	for _, path := range []string{provider, "root:nowhere", "nowhere", "system:admin"} {
		_, err := bob.create(bindingsGVR, bindingTo(path, "parcels"))
		s.refused("to bind the export of "+path, err)
		said[strings.ReplaceAll(fmt.Sprint(err), path, "it")] = true
	}
	if len(said) != 1 {
		t.Errorf("strangers learn what there is: %v", said)
	}
	if _, err := s.trades("boss", consumer).create(bindingsGVR, bindingTo("root:nowhere", "parcels")); err == nil || !strings.Contains(err.Error(), `"root:nowhere" not found`) {
		t.Errorf("a master is told %v", err)
	}

	// The right to bind is all that it takes. It lets nobody in.
	s.letBobBind(provider)
	eventually(t, "bob binds", func(context.Context) error {
		_, err := bob.create(bindingsGVR, bindingTo(provider, "parcels"))
		return err
	})
	_, err := s.trades("bob", provider).client.Resource(exportsGVR).Get(t.Context(), "parcels", metav1.GetOptions{})
	s.refused("to read the export", err)
	_, err = bob.create(bindingsGVR, bindingTo(provider, "other"))
	s.refused("to bind another export", err)
	eventually(t, "bob makes parcels", func(context.Context) error {
		_, err := bob.create(parcels, "{metadata: {name: a}}")
		return err
	})
	b, err := bob.client.Resource(bindingsGVR).Get(t.Context(), "parcels", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if phase, _, _ := unstructured.NestedString(b.Object, "status", "phase"); phase != "Bound" {
		t.Errorf("it is %q", phase)
	}

	// What is bound the leader says, and nobody else. Otherwise whoever guesses a uid could use a schema that was
	// shown to others.
	forged := b.DeepCopy()
	if err := unstructured.SetNestedField(forged.Object, "Binding", "status", "phase"); err != nil {
		t.Fatal(err)
	}
	_, err = bob.client.Resource(bindingsGVR).UpdateStatus(t.Context(), forged, metav1.UpdateOptions{})
	s.refused("to write the status", err)
	forged = b.DeepCopy()
	forged.SetFinalizers(nil)
	_, err = bob.client.Resource(bindingsGVR).Update(t.Context(), forged, metav1.UpdateOptions{})
	s.refused("to remove the finalizer", err)
	forged = b.DeepCopy()
	forged.SetAnnotations(map[string]string{clusters.ExportClusterAnnotation: "another"})
	if out, err := bob.client.Resource(bindingsGVR).Update(t.Context(), forged, metav1.UpdateOptions{}); err != nil ||
		out.GetAnnotations()[clusters.ExportClusterAnnotation] != b.GetAnnotations()[clusters.ExportClusterAnnotation] {
		t.Errorf("the export's cluster is %v (%v)", out.GetAnnotations(), err)
	}
	// A binding says where its export is as the server has found it.
	if _, err := bob.create(bindingsGVR, "{metadata: {name: forged, annotations: {internal.apis.kcp.io/export-cluster: "+b.GetAnnotations()[clusters.ExportClusterAnnotation]+
		"}}, spec: {reference: {export: {name: parcels}}}}"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is bound to nothing", func(ctx context.Context) error {
		b, err := bob.client.Resource(bindingsGVR).Get(ctx, "forged", metav1.GetOptions{})
		if err != nil {
			return err
		}
		text, _ := b.MarshalJSON()
		if !strings.Contains(string(text), "APIExportNotFound") {
			return fmt.Errorf("it is %s", text)
		}
		return nil
	})
	// Built-in groups are nobody's.
	_, err = ann.create(schemasGVR, "{metadata: {name: v1.workspaces.tenancy.kcp.io}, spec: {group: tenancy.kcp.io, scope: Cluster, names: {plural: workspaces, kind: Workspace}, "+
		"versions: [{name: v1, served: true, storage: true, schema: {type: object}}]}}")
	if err == nil || !strings.Contains(err.Error(), "resources of its own in group") {
		t.Errorf("a schema of a built-in group: %v", err)
	}
}
