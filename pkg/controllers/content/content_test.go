package content

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/regent-project/regent/pkg/controllers"
)

var resources = []controllers.Resource{
	{GVR: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Kind: "ConfigMap", Namespaced: true},
	{GVR: schema.GroupVersionResource{Version: "v1", Resource: "limitranges"}, Kind: "LimitRange", Namespaced: true},
}

func object(kind, namespace, name string, finalizers ...string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name), Finalizers: finalizers},
	}
}

// newClient deletes as a server does: what has finalizers stays, and so does what is not of the uid that was meant.
func newClient(t *testing.T, objects ...runtime.Object) *fake.FakeMetadataClient {
	t.Helper()
	scheme := fake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	client := fake.NewSimpleMetadataClient(scheme, objects...)
	client.PrependReactor("delete", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		deletion := action.(clienttesting.DeleteActionImpl)
		stored, err := client.Tracker().Get(action.GetResource(), action.GetNamespace(), deletion.Name)
		if err != nil {
			return true, nil, err
		}
		obj := stored.(*metav1.PartialObjectMetadata)
		if uid := deletion.DeleteOptions.Preconditions.UID; *uid != obj.UID {
			return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), obj.Name, fmt.Errorf("uid %q", *uid))
		}
		return len(obj.Finalizers) > 0, nil, nil
	})
	return client
}

func TestPurgeDeletesWhatIsThereAndCountsWhatStays(t *testing.T) {
	client := newClient(t,
		object("ConfigMap", "n", "a"), object("ConfigMap", "n", "b", "x/y"), object("LimitRange", "n", "c"), object("LimitRange", "m", "d", "x/y", "z/w"))
	got, err := Purge(t.Context(), client, resources, "")
	if err != nil {
		t.Fatal(err)
	}
	want := Remaining{Objects: map[string]int{"configmaps": 1, "limitranges": 1}, Finalizers: map[string]int{"x/y": 2, "z/w": 1}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	found, err := Find(t.Context(), client, resources, "")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(got, found); d != "" {
		t.Errorf("Find differs:\n%s", d)
	}
}

func TestPurgeOfANamespaceTouchesNoOther(t *testing.T) {
	client := newClient(t, object("ConfigMap", "n", "a"), object("ConfigMap", "m", "a"))
	got, err := Purge(t.Context(), client, resources, "n")
	if err != nil || !got.Empty() {
		t.Fatalf("got %+v, %v", got, err)
	}
	left, err := Find(t.Context(), client, resources, "")
	if err != nil || left.Objects["configmaps"] != 1 {
		t.Errorf("left %+v, %v; want the one in m", left, err)
	}
}

func TestPurgeSparesWhatComesUnderAnOldName(t *testing.T) {
	client := newClient(t, object("ConfigMap", "n", "a"))
	client.PrependReactor("delete", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		next := object("ConfigMap", "n", "a")
		next.UID = "another"
		return false, nil, client.Tracker().Update(action.GetResource(), next, "n")
	})
	if _, err := Purge(t.Context(), client, resources, "n"); err != nil {
		t.Error(err)
	}
	if _, err := client.Tracker().Get(resources[0].GVR, "n", "a"); err != nil {
		t.Errorf("it was deleted: %v", err)
	}
}

func TestPurgeTellsOneOfItsFailures(t *testing.T) {
	client := newClient(t, object("LimitRange", "n", "a"), object("LimitRange", "n", "b"))
	broken := errors.New("broken")
	client.PrependReactor("delete", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, broken })
	if _, err := Purge(t.Context(), client, resources, "n"); !errors.Is(err, broken) || strings.Count(err.Error(), "broken") != 1 {
		t.Errorf("error %v, want %v once", err, broken)
	}
}

func TestNothingIsDeletedWhereNothingIs(t *testing.T) {
	client := newClient(t)
	if got, err := Purge(t.Context(), client, resources, "n"); err != nil || !got.Empty() {
		t.Fatalf("got %+v, %v", got, err)
	}
	for _, action := range client.Actions() {
		if action.GetVerb() != "list" {
			t.Errorf("unexpected %s of %s", action.GetVerb(), action.GetResource().Resource)
		}
	}
}

func TestAResourceThatFailsDoesNotKeepOthers(t *testing.T) {
	client := newClient(t, object("LimitRange", "n", "a"))
	broken := errors.New("broken")
	client.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, broken })
	if _, err := Purge(t.Context(), client, resources, "n"); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	if _, err := client.Tracker().Get(resources[1].GVR, "n", "a"); err == nil {
		t.Error("the limit range was not deleted")
	}
}

// Users who have to remove a finalizer have their account, and their rights, until nothing waits for them.
func TestRightsAndIdentityGoLast(t *testing.T) {
	rbac := schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}
	all := []controllers.Resource{
		{GVR: rbac.WithResource("clusterrolebindings"), Kind: "ClusterRoleBinding"},
		{GVR: rbac.WithResource("rolebindings"), Kind: "RoleBinding", Namespaced: true},
		{GVR: schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, Kind: "ServiceAccount", Namespaced: true},
		{GVR: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Kind: "Secret", Namespaced: true},
		resources[0],
	}
	binding := func(kind, namespace string) *metav1.PartialObjectMetadata {
		obj := object(kind, namespace, "b")
		obj.APIVersion = rbac.String()
		return obj
	}
	held, secret := object("ConfigMap", "n", "held", "x/y"), object("Secret", "n", "held", "x/y")
	client := newClient(t, held, secret, object("ServiceAccount", "n", "account"), binding("RoleBinding", "n"), binding("ClusterRoleBinding", ""))
	for _, step := range []struct {
		waitsFor string
		left     int
		obj      *metav1.PartialObjectMetadata
		resource controllers.Resource
	}{{"configmaps", 5, held, all[4]}, {"secrets", 4, secret, all[3]}} {
		got, err := Purge(t.Context(), client, all, "")
		if err != nil || len(got.Objects) != 1 || got.Objects[step.waitsFor] != 1 {
			t.Fatalf("it waits for %+v, %v; want %s", got, err, step.waitsFor)
		}
		left, err := Find(t.Context(), client, all, "")
		if err != nil || len(left.Objects) != step.left {
			t.Errorf("while it waits for %s there are %+v, %v", step.waitsFor, left, err)
		}
		step.obj.Finalizers = nil
		if err := client.Tracker().Update(step.resource.GVR, step.obj, "n"); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := Purge(t.Context(), client, all, ""); err != nil || !got.Empty() {
		t.Errorf("in the end: %+v, %v", got, err)
	}
	if left, err := Find(t.Context(), client, all, ""); err != nil || !left.Empty() {
		t.Errorf("left: %+v, %v", left, err)
	}
}

// A thousand definitions go one after the other, and a pass over them comes with each.
func TestWhatIsBeingDeletedIsNotDeletedAgain(t *testing.T) {
	going := object("ConfigMap", "n", "going", "x/y")
	going.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	client := newClient(t, going, object("ConfigMap", "n", "there", "x/y"), object("ConfigMap", "n", "gone"))
	got, err := Purge(t.Context(), client, resources, "n")
	if err != nil || got.Objects["configmaps"] != 2 {
		t.Fatalf("got %+v, %v", got, err)
	}
	for _, action := range client.Actions() {
		if deletion, ok := action.(clienttesting.DeleteAction); ok && deletion.GetName() == "going" {
			t.Error("it was deleted again")
		}
	}
}
