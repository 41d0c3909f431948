package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/clusters"
)

// trade is an installation in which ann exports parcels from workspace provider, on shard root, and bob has workspace
// consumer, on shard eu1.
type trade struct {
	*installation
	provider logicalcluster.Name
	consumer logicalcluster.Name
}

func startTrade(t *testing.T) *trade {
	t.Helper()
	i := installPrepared(t, []func(*Server){withPeople}, "eu1")
	out := &trade{installation: i}
	root := i.shards["root"]
	i.cordon("eu1")
	root.create("provider")
	out.provider = logicalcluster.Name(root.ready("provider"))
	i.uncordon("eu1")
	i.cordon("root")
	root.create("consumer")
	out.consumer = logicalcluster.Name(root.ready("consumer"))
	for who, at := range map[string]struct {
		shard   string
		cluster logicalcluster.Name
	}{"ann": {"root", out.provider}, "bob": {"eu1", out.consumer}} {
		admin := i.shards[at.shard].at.adminIn(t, at.cluster).RbacV1()
		if _, err := admin.ClusterRoleBindings().Create(t.Context(), toUser("boss", "cluster-admin", who), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "ann exports parcels", func(ctx context.Context) error {
		_, err := out.ann().client.Resource(exportsGVR).List(ctx, metav1.ListOptions{})
		return err
	})
	eventually(t, "bob enters workspace consumer", func(ctx context.Context) error {
		_, err := out.bob().client.Resource(bindingsGVR).List(ctx, metav1.ListOptions{})
		return err
	})
	out.ann().exports()
	return out
}

func (i *trade) society(shard string) *society {
	return &society{i.shards[shard], i.shards[shard].at}
}

func (i *trade) ann() *trader { return i.society("root").trades("ann", i.provider.String()) }

func (i *trade) bob(change ...func(*rest.Config)) *trader {
	return i.society("eu1").trades("bob", i.consumer.String(), change...)
}

// binds has bob bind parcels, and use them.
func (i *trade) binds() {
	i.Helper()
	eventually(i.T, "bob binds", func(context.Context) error {
		_, err := i.bob().create(bindingsGVR, bindingTo("root:provider", "parcels"))
		return err
	})
	eventually(i.T, "bob makes a parcel", func(context.Context) error {
		_, err := i.bob().create(parcels, "{metadata: {name: first}}")
		return err
	})
}

// untilBound waits until bob's binding is as wanted.
func (i *trade) untilBound(what string, as func(*apisv1alpha2.APIBinding) bool) {
	i.Helper()
	var b *apisv1alpha2.APIBinding
	defer func() {
		if i.Failed() && b != nil {
			i.Logf("it is %+v", b.Status)
		}
	}()
	i.until("eu1", what, func() bool {
		u := i.shards["eu1"]
		b = must(u.at.shard.Clients.Bindings.Get(in(u, i.consumer.String()), "parcels", metav1.GetOptions{}))(u)
		return as(b)
	})
}

// offers has ann export parcels as another schema says, with a prefix of its own.
func (i *trade) offers(prefix string) {
	i.Helper()
	name := prefix + ".parcels.example.com"
	if _, err := i.ann().create(schemasGVR, "{metadata: {name: "+name+"}, spec: {group: example.com, scope: Cluster, names: {plural: parcels, kind: Parcel}, "+
		"versions: [{name: v1, served: true, storage: true, schema: {type: object, properties: {spec: {type: object, properties: {weight: {type: integer}}}}}}]}}"); err != nil {
		i.Fatal(err)
	}
	patch := `[{"op": "replace", "path": "/spec/resources/0/schema", "value": "` + name + `"}]`
	if _, err := i.ann().client.Resource(exportsGVR).Patch(i.Context(), "parcels", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		i.Fatal(err)
	}
}

func isBoundTo(schema string) func(*apisv1alpha2.APIBinding) bool {
	return func(b *apisv1alpha2.APIBinding) bool {
		return len(b.Status.BoundResources) == 1 && b.Status.BoundResources[0].Schema.Name == schema && b.Status.Phase == apisv1alpha2.APIBindingPhaseBound
	}
}

func TestAnExportOfAnotherShardIsBoundByWhoeverMayBindIt(t *testing.T) {
	t.Parallel() // most of it is waiting
	i := startTrade(t)
	refused := i.society("eu1").refused

	// The answer is the same whether there is such an export, such a workspace, or neither.
	said := map[string]bool{}
	for _, path := range []string{"root:provider", i.provider.String(), "root:nowhere", "root:provider:nowhere", "nowhere", "system:admin"} {
		_, err := i.bob().create(bindingsGVR, bindingTo(path, "parcels"))
		refused("to bind the export of "+path, err)
		said[strings.ReplaceAll(fmt.Sprint(err), path, "it")] = true
	}
	if len(said) != 1 {
		t.Errorf("strangers learn what there is: %v", said)
	}
	eventually(t, "bob may do everything in workspace consumer as ann", func(ctx context.Context) error {
		binding := toUser("ann", "cluster-admin", "ann")
		_, err := i.society("eu1").as("bob", i.consumer.String()).RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		_, err = i.bob(func(c *rest.Config) { c.Impersonate.UserName = "ann" }).client.Resource(bindingsGVR).List(ctx, metav1.ListOptions{})
		return err
	})
	_, err := i.bob(func(c *rest.Config) { c.Impersonate.UserName = "ann" }).create(bindingsGVR, bindingTo("root:provider", "parcels"))
	refused("to bind as ann", err)

	i.society("root").letBobBind(i.provider.String())
	i.binds()
	_, err = i.bob().create(bindingsGVR, bindingTo("root:provider", "other"))
	refused("to bind another export", err)
	if _, err := i.bob().create(parcels, "{metadata: {name: second}, spec: {secretOfAnn: many}}"); !apierrors.IsInvalid(err) {
		t.Errorf("against the schema: %v", err)
	}
	uid := types.UID("")
	if s, err := i.ann().client.Resource(schemasGVR).Get(t.Context(), "v1.parcels.example.com", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	} else {
		uid = s.GetUID()
	}
	i.untilBound("the copy of the schema is not taken for that of a schema of this shard", func(b *apisv1alpha2.APIBinding) bool {
		return isBoundTo("v1.parcels.example.com")(b) && b.Status.BoundResources[0].Schema.UID == string(clusters.ForeignUID("root", uid)) && b.Status.APIExportClusterName == i.provider.String()
	})

	// Where the export is the server has found. Nobody else says so.
	b, err := i.bob().client.Resource(bindingsGVR).Get(t.Context(), "parcels", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	forged := b.DeepCopy()
	forged.SetAnnotations(map[string]string{clusters.ExportShardAnnotation: "another"})
	out, err := i.bob().client.Resource(bindingsGVR).Update(t.Context(), forged, metav1.UpdateOptions{})
	if err != nil || out.GetAnnotations()[clusters.ExportShardAnnotation] != "root" || out.GetAnnotations()[clusters.ExportClusterAnnotation] != i.provider.String() {
		t.Errorf("forged: %v (%v)", out, err)
	}
	made, err := i.bob().create(bindingsGVR, "{metadata: {name: forged, annotations: {"+clusters.ExportShardAnnotation+": root, "+clusters.ExportClusterAnnotation+": "+i.provider.String()+
		"}}, spec: {reference: {export: {name: other}}}}")
	if err != nil || made.GetAnnotations()[clusters.ExportShardAnnotation] != "" {
		t.Errorf("made with a forged place: %v (%v)", made, err)
	}

	// What the owner of the export changes arrives.
	i.offers("v2")
	i.untilBound("the new schema is followed", isBoundTo("v2.parcels.example.com"))
	eventually(t, "bob weighs a parcel", func(context.Context) error {
		_, err := i.bob().create(parcels, "{metadata: {name: third}, spec: {weight: 7}}")
		return err
	})
	if err := i.ann().client.Resource(exportsGVR).Delete(t.Context(), "parcels", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	i.untilBound("the export has gone", func(b *apisv1alpha2.APIBinding) bool {
		text := fmt.Sprint(b.Status.Conditions)
		return isBoundTo("v2.parcels.example.com")(b) && strings.Contains(text, "there is no APIExport parcels")
	})
	if _, err := i.bob().client.Resource(parcels).Get(t.Context(), "first", metav1.GetOptions{}); err != nil {
		t.Errorf("what is bound does not stay so: %v", err)
	}

	// What is unbound leaves nothing.
	if err := i.bob().client.Resource(bindingsGVR).Delete(t.Context(), "parcels", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	i.until("eu1", "no copy of a schema is left", func() bool {
		return len(i.shards["eu1"].at.shard.Informers.APIResourceSchemas.List(clusters.BoundSchemas)) == 0
	})
}

func TestWhatIsBoundServesWhileTheShardOfItsExportIsDown(t *testing.T) {
	t.Parallel() // most of it is waiting
	i := startTrade(t)
	i.society("root").letBobBind(i.provider.String())
	i.binds()
	if err := i.shards["root"].at.stop(t); err != nil {
		t.Fatal(err)
	}
	i.until("eu1", "eu1 misses root", func() bool { return !i.shards["eu1"].at.shard.Shards.Contact.Hears("root") })
	uses := func(when, name string) {
		t.Helper()
		if _, err := i.bob().create(parcels, "{metadata: {name: "+name+"}}"); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		i.untilBound(when, isBoundTo("v1.parcels.example.com"))
	}
	uses("the export's shard is down", "second")
	_, err := i.bob(func(c *rest.Config) { c.Wrap(func(next http.RoundTripper) http.RoundTripper { return onlyOnce{next} }) }).create(bindingsGVR, "{metadata: {name: late}, spec: {reference: {export: {path: 'root:provider', name: parcels}}}}")
	if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "shard root is not heard") {
		t.Errorf("a new binding: %v", err)
	}

	// A new leader, which has not heard of the export, takes nothing away.
	if err := i.shards["eu1"].at.stop(t); err != nil {
		t.Fatal(err)
	}
	i.again("eu1")
	eventually(t, "bob enters workspace consumer", func(ctx context.Context) error {
		_, err := i.bob().client.Resource(parcels).List(ctx, metav1.ListOptions{})
		return err
	})
	uses("the export's shard is down, and this one has begun anew", "third")

	i.again("root")
	i.until("eu1", "eu1 hears root", func() bool { return i.shards["eu1"].at.shard.Shards.Contact.Hears("root") })
	eventually(t, "ann enters workspace provider", func(ctx context.Context) error {
		_, err := i.ann().client.Resource(exportsGVR).List(ctx, metav1.ListOptions{})
		return err
	})
	i.offers("v2")
	i.untilBound("the new schema is followed", isBoundTo("v2.parcels.example.com"))
}
