package apis

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/metadata"

	"github.com/regent-project/regent/test/etcdtest"
)

func TestANamespaceStaysUntilItsFinalizersAreGone(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	client := s.kube(t, "aa").CoreV1().Namespaces()
	ns, err := client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if ns.Status.Phase != corev1.NamespaceActive || !slices.Equal(ns.Spec.Finalizers, []corev1.FinalizerName{"kubernetes"}) || ns.Labels["kubernetes.io/metadata.name"] != "n" {
		t.Errorf("created %+v", ns)
	}
	if err := client.Delete(t.Context(), "n", metav1.DeleteOptions{DryRun: []string{"All"}}); err != nil {
		t.Fatal(err)
	}
	if ns, err = client.Get(t.Context(), "n", metav1.GetOptions{}); err != nil || ns.Status.Phase != corev1.NamespaceActive {
		t.Fatalf("after a dry run: %v, phase %s", err, ns.Status.Phase)
	}
	for range 2 {
		if err := client.Delete(t.Context(), "n", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if ns, err = client.Get(t.Context(), "n", metav1.GetOptions{}); err != nil || ns.Status.Phase != corev1.NamespaceTerminating || ns.DeletionTimestamp == nil {
			t.Fatalf("after the deletion: %v, %+v", err, ns)
		}
	}
	// Neither the main resource nor the status removes the finalizer.
	ns.Spec.Finalizers = nil
	if ns, err = client.Update(t.Context(), ns, metav1.UpdateOptions{}); err != nil || len(ns.Spec.Finalizers) != 1 {
		t.Fatalf("update: %v, finalizers %v", err, ns.Spec.Finalizers)
	}
	ns.Spec.Finalizers = nil
	if ns, err = client.UpdateStatus(t.Context(), ns, metav1.UpdateOptions{}); err != nil || len(ns.Spec.Finalizers) != 1 {
		t.Fatalf("status: %v, finalizers %v", err, ns.Spec.Finalizers)
	}
	ns.Status.Phase = corev1.NamespaceActive
	if _, err := client.UpdateStatus(t.Context(), ns, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a terminating namespace becomes active: %v", err)
	}
	ns.Spec.Finalizers = nil
	if _, err := client.Finalize(t.Context(), ns, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get(t.Context(), "n", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace is still there: %v", err)
	}
}

func TestANamespaceWithMetadataFinalizersOutlivesItsContent(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	client := s.kube(t, "aa").CoreV1().Namespaces()
	ns, err := client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", Finalizers: []string{"example.com/mine"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	policy := metav1.DeletePropagationForeground
	if err := client.Delete(t.Context(), "n", metav1.DeleteOptions{PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &ns.UID}}); err != nil {
		t.Fatal(err)
	}
	if ns, err = client.Get(t.Context(), "n", metav1.GetOptions{}); err != nil || !slices.Equal(ns.Finalizers, []string{"example.com/mine", metav1.FinalizerDeleteDependents}) {
		t.Fatalf("%v, finalizers %v", err, ns.Finalizers)
	}
	ns.Spec.Finalizers = nil
	if _, err = client.Finalize(t.Context(), ns, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err = client.Get(t.Context(), "n", metav1.GetOptions{}); err != nil {
		t.Fatalf("the namespace is gone with metadata.finalizers left: %v", err)
	}
	if _, err := client.Patch(t.Context(), "n", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get(t.Context(), "n", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace is still there: %v", err)
	}
}

func TestServerSideApplyKeepsOwnersApart(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	client := s.kube(t, "aa").CoreV1().ConfigMaps("default")
	apply := func(manager, key, value string, force bool) (*corev1.ConfigMap, error) {
		return client.Apply(t.Context(), applycorev1.ConfigMap("x", "default").WithData(map[string]string{key: value}), metav1.ApplyOptions{FieldManager: manager, Force: force})
	}
	if _, err := apply("one", "k", "1", false); err != nil {
		t.Fatal(err)
	}
	if _, err := apply("two", "other", "1", false); err != nil {
		t.Fatal(err)
	}
	if _, err := apply("two", "k", "2", false); !apierrors.IsConflict(err) {
		t.Errorf("taking another manager's field: %v, want a conflict", err)
	}
	got, err := apply("two", "k", "2", true)
	if err != nil || got.Data["k"] != "2" || got.Data["other"] != "" {
		t.Errorf("forced: %v, %v", got.Data, err)
	}
}

func TestStatusIsASubresource(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	client := s.dynamic(t, "root").Resource(schema.GroupVersionResource{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspaces"})
	ws := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": map[string]any{"generateName": "w-"}, "spec": map[string]any{},
		"status": map[string]any{"phase": "Ready"},
	}}
	got, err := client.Create(t.Context(), ws, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if name := got.GetName(); !strings.HasPrefix(name, "w-") || len(name) != len("w-")+5 {
		t.Errorf("generated name %q", name)
	}
	expect := func(want string, path ...string) {
		t.Helper()
		if value, _, _ := unstructured.NestedString(got.Object, path...); value != want {
			t.Errorf("%v is %q, want %q", path, value, want)
		}
	}
	expect("universal", "spec", "type", "name")
	expect("root", "spec", "type", "path")
	expect("Scheduling", "status", "phase")
	_ = unstructured.SetNestedField(got.Object, "Ready", "status", "phase")
	_ = unstructured.SetNestedField(got.Object, "c1", "spec", "cluster")
	if got, err = client.Update(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("Scheduling", "status", "phase")
	expect("c1", "spec", "cluster")
	if got.GetGeneration() != 2 {
		t.Errorf("generation %d after one change of the spec", got.GetGeneration())
	}
	_ = unstructured.SetNestedField(got.Object, "Ready", "status", "phase")
	_ = unstructured.SetNestedField(got.Object, "c2", "spec", "cluster")
	if got, err = client.UpdateStatus(t.Context(), got, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("Ready", "status", "phase")
	expect("c1", "spec", "cluster")
	if got.GetGeneration() != 2 {
		t.Errorf("generation %d after a change of the status", got.GetGeneration())
	}
	_ = unstructured.SetNestedField(got.Object, "c2", "spec", "cluster")
	if _, err := client.Update(t.Context(), got, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("spec.cluster changes: %v", err)
	}
	apply := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "Workspace", "metadata": map[string]any{"name": got.GetName(), "labels": map[string]any{"region": "x"}},
	}}
	if got, err = client.Apply(t.Context(), got.GetName(), apply, metav1.ApplyOptions{FieldManager: "test"}); err != nil || got.GetLabels()["region"] != "x" {
		t.Errorf("apply: %v, labels %v", err, got.GetLabels())
	}
	expect("c1", "spec", "cluster")
}

// The paths and URLs of all that is made in a cluster begin with its own.
func TestALogicalClustersPathIsForEver(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	client := s.dynamic(t, "aa").Resource(corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"))
	lc := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "core.kcp.io/v1alpha1", "kind": "LogicalCluster", "metadata": map[string]any{"name": "cluster"},
	}}
	if _, err := client.Create(t.Context(), lc, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		patch   string
		allowed bool
	}{
		{`{"metadata":{"annotations":{"kcp.io/path":"root:a"}}}`, true},
		{`{"metadata":{"annotations":{"kcp.io/path":"root:b"}}}`, false},
		{`{"metadata":{"annotations":{"kcp.io/path":null}}}`, false},
		{`{"metadata":{"annotations":{"other":"b"}}}`, true},
	} {
		for _, subresource := range [][]string{nil, {"status"}} {
			_, err := client.Patch(t.Context(), "cluster", types.MergePatchType, []byte(c.patch), metav1.PatchOptions{}, subresource...)
			if c.allowed && err != nil || !c.allowed && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "kcp.io/path")) {
				t.Errorf("%s of %q: %v, want allowed: %t", c.patch, subresource, err, c.allowed)
			}
		}
	}
}

func TestEventsOfBothGroupsAreTheSame(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	kube := s.kube(t, "aa")
	event := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: "new", Namespace: "default"},
		EventTime:           metav1.NowMicro(),
		ReportingController: "example.com/c",
		ReportingInstance:   "i",
		Action:              "Did",
		Reason:              "Because",
		Regarding:           corev1.ObjectReference{Kind: "ConfigMap", Name: "x", Namespace: "default"},
		Note:                "what",
		Type:                "Normal",
	}
	if _, err := kube.EventsV1().Events("default").Create(t.Context(), event, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	core, err := kube.CoreV1().Events("default").Get(t.Context(), "new", metav1.GetOptions{})
	if err != nil || core.Message != "what" || core.InvolvedObject.Name != "x" || core.ReportingController != "example.com/c" {
		t.Errorf("as core event: %+v, %v", core, err)
	}
	old := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "old", Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{Kind: "Secret", Name: "y", Namespace: "default"},
		Reason:         "Why", Message: "m", Count: 3, Source: corev1.EventSource{Component: "kubelet"}, Type: "Warning",
	}
	if _, err := kube.CoreV1().Events("default").Create(t.Context(), old, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for selector, want := range map[string]string{"regarding.name=x": "new", "regarding.kind=Secret": "old", "type=Warning": "old", "reportingController=example.com/c": "new"} {
		list, err := kube.EventsV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: selector})
		if err != nil || len(list.Items) != 1 || list.Items[0].Name != want {
			t.Errorf("%s: %v, %v, want %s", selector, list.Items, err, want)
		}
	}
	for selector, want := range map[string]string{"involvedObject.name=x": "new", "involvedObject.kind=Secret": "old", "source=kubelet": "old", "reason=Because": "new"} {
		list, err := kube.CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: selector})
		if err != nil || len(list.Items) != 1 || list.Items[0].Name != want {
			t.Errorf("%s: %v, %v, want %s", selector, list.Items, err, want)
		}
	}
	got, err := kube.EventsV1().Events("default").Get(t.Context(), "old", metav1.GetOptions{})
	if err != nil || got.DeprecatedCount != 3 || got.Note != "m" || got.DeprecatedSource.Component != "kubelet" {
		t.Errorf("as new event: %+v, %v", got, err)
	}
	event.Note = "else"
	if _, err := kube.EventsV1().Events("default").Update(t.Context(), event, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("the note of an event changes: %v", err)
	}
	if _, err := kube.EventsV1().Events("default").Patch(t.Context(), "new", types.StrategicMergePatchType,
		[]byte(`{"series":{"count":2,"lastObservedTime":"2026-01-01T00:00:00.000000Z"}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("an event is not made a series: %v", err)
	}
	if ttl := s.ttl(t, "/registry/core/events/aa/default/old"); ttl < 3000 || ttl > 4000 {
		t.Errorf("an event lives %d s, want about an hour", ttl)
	}
}

// ttl returns how long a key lives, in seconds.
func (s *shard) ttl(t *testing.T, key string) int64 {
	t.Helper()
	resp, err := s.storage.Etcd().Get(t.Context(), key)
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("%s: %v, %v", key, resp, err)
	}
	lease, err := s.storage.Etcd().TimeToLive(t.Context(), clientv3.LeaseID(resp.Kvs[0].Lease))
	if err != nil {
		t.Fatal(err)
	}
	return lease.GrantedTTL
}

// get reads a path into out.
func (s *shard) get(t *testing.T, path, accept string, out any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(json.NewDecoder(resp.Body).Decode(out), resp.Body.Close()); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", path, resp.Status, err)
	}
}

func TestFieldSelectorsSelect(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	kube := s.kube(t, "aa")
	for _, typ := range []corev1.SecretType{"Opaque", "example.com/x"} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"}, Type: typ, StringData: map[string]string{"k": "v"}}
		got, err := kube.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{})
		if err != nil || string(got.Data["k"]) != "v" || got.StringData != nil {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if _, err := kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, rv := range []string{"", "0"} {
		secrets, err := kube.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{FieldSelector: "type=example.com/x"})
		if err != nil || len(secrets.Items) != 1 {
			t.Errorf("%d secrets, %v", len(secrets.Items), err)
		}
		active, err := kube.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{FieldSelector: "status.phase=Active", ResourceVersion: rv})
		if err != nil || len(active.Items) != 1 {
			t.Errorf("%d namespaces, %v", len(active.Items), err)
		}
	}
	if _, err := kube.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{FieldSelector: "data.k=v"}); !apierrors.IsBadRequest(err) {
		t.Errorf("an unknown field: %v, want a bad request", err)
	}
}

func TestADryRunWritesNothing(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	client := s.kube(t, "aa").CoreV1().ConfigMaps("default")
	dry := []string{metav1.DryRunAll}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	if _, err := client.Create(t.Context(), cm, metav1.CreateOptions{DryRun: dry}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get(t.Context(), "x", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a dry run creates: %v", err)
	}
	if _, err := client.Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cm.Data = map[string]string{"k": "v"}
	if got, err := client.Update(t.Context(), cm, metav1.UpdateOptions{DryRun: dry}); err != nil || got.Data["k"] != "v" {
		t.Errorf("%v, %v", got, err)
	}
	if err := client.Delete(t.Context(), "x", metav1.DeleteOptions{DryRun: dry}); err != nil {
		t.Fatal(err)
	}
	if got, err := client.Get(t.Context(), "x", metav1.GetOptions{}); err != nil || got.Data != nil {
		t.Errorf("after dry runs: %v, %v", got, err)
	}
}

func TestDeletionOptionsLeaveWorkToTheGarbageCollector(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	client := s.kube(t, "aa").CoreV1().ConfigMaps("default")
	for policy, finalizer := range map[metav1.DeletionPropagation]string{
		metav1.DeletePropagationForeground: metav1.FinalizerDeleteDependents,
		metav1.DeletePropagationOrphan:     metav1.FinalizerOrphanDependents,
		metav1.DeletePropagationBackground: "",
	} {
		name := strings.ToLower(string(policy))
		if _, err := client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := client.Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
			t.Fatal(err)
		}
		got, err := client.Get(t.Context(), name, metav1.GetOptions{})
		if finalizer == "" && !apierrors.IsNotFound(err) {
			t.Errorf("%s: still there (%v)", policy, err)
		}
		if finalizer != "" && (err != nil || !slices.Equal(got.Finalizers, []string{finalizer})) {
			t.Errorf("%s: %v, finalizers %v", policy, err, got.Finalizers)
		}
	}
}

func TestDiscoveryNamesAreKubectls(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	got := s.served(t)
	shortNames := map[string]string{
		"v1 namespaces": "ns", "v1 configmaps": "cm", "v1 secrets": "", "v1 serviceaccounts": "sa", "v1 events": "ev", "events.k8s.io/v1 events": "ev",
		"coordination.k8s.io/v1 leases": "", "coordination.k8s.io/v1beta1 leasecandidates": "",
		"rbac.authorization.k8s.io/v1 roles": "", "rbac.authorization.k8s.io/v1 clusterroles": "",
		"rbac.authorization.k8s.io/v1 rolebindings": "", "rbac.authorization.k8s.io/v1 clusterrolebindings": "",
		"tenancy.kcp.io/v1alpha1 workspaces": "ws", "core.kcp.io/v1alpha1 logicalclusters": "", "core.kcp.io/v1alpha1 shards": "",
		"apiextensions.k8s.io/v1 customresourcedefinitions": "crd,crds",
		"apis.kcp.io/v1alpha1 apiresourceschemas":           "", "apis.kcp.io/v1alpha2 apiexports": "", "apis.kcp.io/v1alpha2 apibindings": "",
	}
	expectLines(t, got, shortNames, "short names")
	for key, short := range shortNames {
		r := got[key]
		if strings.Join(r.ShortNames, ",") != short {
			t.Errorf("%s has the short names %q, want %q", key, r.ShortNames, short)
		}
		if !slices.Contains(r.Verbs, "watch") || !slices.Contains(r.Verbs, "patch") {
			t.Errorf("%s has the verbs %v", key, r.Verbs)
		}
	}
	if !slices.Contains(got["tenancy.kcp.io/v1alpha1 workspaces"].Categories, "kcp") {
		t.Error("workspaces are not in the category kcp")
	}
}

// Clients that prefer protobuf, as client-go's metadata client does, get JSON where a type does not speak it.
func TestWhoPrefersProtobufGetsJSONOfKcpTypes(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	client, err := metadata.NewForConfig(metadata.ConfigFor(s.config("root")))
	if err != nil {
		t.Fatal(err)
	}
	workspaces := tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces")
	for _, name := range []string{"one", "two"} {
		_, err := s.dynamic(t, "root").Resource(workspaces).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": tenancyv1alpha1.SchemeGroupVersion.String(), "kind": "Workspace",
			// so that the object is the answer
			"metadata": map[string]any{"name": name, "finalizers": []any{"example.com/kept"}},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Resource(workspaces).Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete: %v", err)
	}
	if err := client.Resource(workspaces).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Errorf("delete collection: %v", err)
	}
}

func TestADryRunShowsTheClusterToo(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: map[string]string{anAnnotation: "forged"}}}
	got, err := s.kube(t, "aa").CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || got.Annotations[anAnnotation] != "aa" {
		t.Errorf("%v: annotated with %q, want aa", err, got.Annotations[anAnnotation])
	}
}
