package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/regent-project/regent/test/e2e/harness"
)

// renamingHook is a conversion webhook that changes nothing but the version, until it hangs.
type renamingHook struct {
	*httptest.Server
	hangs  atomic.Bool
	called atomic.Int64
}

func startHook(t *testing.T) *renamingHook {
	t.Helper()
	h, over := &renamingHook{}, make(chan struct{})
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h.called.Add(1)
		var review struct {
			Request struct {
				UID               string
				DesiredAPIVersion string
				Objects           []map[string]any
			}
		}
		_ = json.NewDecoder(req.Body).Decode(&review)
		if h.hangs.Load() {
			select {
			case <-req.Context().Done():
			case <-over:
			}
			return
		}
		for _, o := range review.Request.Objects {
			o["apiVersion"] = review.Request.DesiredAPIVersion
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": map[string]any{
			"uid": review.Request.UID, "convertedObjects": review.Request.Objects, "result": map[string]any{"status": "Success"},
		}})
	}))
	t.Cleanup(func() {
		close(over)
		h.CloseClientConnections()
		h.Close()
	})
	return h
}

// inTwoVersions has a definition of v1, which is stored, and v2, which the webhook converts from and to.
func (h *renamingHook) inTwoVersions(d *unstructured.Unstructured) *unstructured.Unstructured {
	versions, _, _ := unstructured.NestedSlice(d.Object, "spec", "versions")
	second := map[string]any{"name": "v2", "served": true, "storage": false, "schema": versions[0].(map[string]any)["schema"]}
	_ = unstructured.SetNestedSlice(d.Object, append(versions, second), "spec", "versions")
	_ = unstructured.SetNestedMap(d.Object, map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"conversionReviewVersions": []any{"v1"},
		"clientConfig": map[string]any{
			"url": h.URL, "caBundle": base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})),
		},
	}}, "spec", "conversion")
	return d
}

// stores changes which version of a definition is stored.
func stores(t *testing.T, in dynamic.Interface, name, version string) {
	t.Helper()
	harness.Eventually(t, "version "+version+" is stored", func() bool {
		d, err := in.Resource(definitions).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		versions, _, _ := unstructured.NestedSlice(d.Object, "spec", "versions")
		for _, v := range versions {
			v := v.(map[string]any)
			v["storage"] = v["name"] == version
		}
		_ = unstructured.SetNestedSlice(d.Object, versions, "spec", "versions")
		_, err = in.Resource(definitions).Update(t.Context(), d, metav1.UpdateOptions{})
		return err == nil
	})
}

// A tenant's conversion webhook hangs. Other clusters, garbage collection, deletions, the leader's end and its
// successor do not wait for it.
func TestAConversionWebhookThatHangsHoldsUpNobodyElse(t *testing.T) {
	etcd, hook := harness.StartEtcd(t), startHook(t)
	shard := harness.NewShard(etcd.URL)
	shard.Args = []string{"--conversion-webhook-networks=127.0.0.1"}
	a, b := shard.Start(t, "a"), shard.Start(t, "b")
	leader, others := harness.Leader(t, a, b)
	next := others[0]
	leader.WaitRoot()
	leader.CreateWorkspace("one")
	leader.CreateWorkspace("two")
	one, two := leader.WaitWorkspace("one"), leader.WaitWorkspace("two")
	in, widgets := leader.Dynamic(one), schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	if _, err := in.Resource(definitions).Create(t.Context(), hook.inTwoVersions(definitionOf("Widget", "widgets")), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	core := leader.Kube(one).CoreV1()
	owner, err := core.ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "leaving"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	dependent := customObject("Widget", "dependent")
	dependent.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.UID}})
	for namespace, obj := range map[string]*unstructured.Unstructured{"default": dependent, "leaving": customObject("Widget", "x")} {
		harness.Eventually(t, "a widget is made in "+namespace, func() bool {
			_, err := in.Resource(widgets).Namespace(namespace).Create(t.Context(), obj.DeepCopy(), metav1.CreateOptions{})
			return err == nil || apierrors.IsAlreadyExists(err)
		})
	}
	for n := range 20 {
		if _, err := in.Resource(widgets).Namespace("default").Create(t.Context(), customObject("Widget", fmt.Sprint("w", n)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	gadgets := widgets.GroupVersion().WithResource("gadgets")
	if _, err := leader.Dynamic(two).Resource(definitions).Create(t.Context(), definitionOf("Gadget", "gadgets"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "a gadget is made", func() bool {
		_, err := leader.Dynamic(two).Resource(gadgets).Namespace("default").Create(t.Context(), customObject("Gadget", "g"), metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err)
	})
	stores(t, in, "widgets.example.com", "v2") // what there is stays in v1
	hook.hangs.Store(true)

	asking, stop := context.WithCancel(t.Context())
	var users sync.WaitGroup
	defer users.Wait()
	defer stop()
	second := widgets.GroupVersion().WithResource("widgets")
	second.Version = "v2"
	for n := range 30 {
		users.Go(func() { // until the replica stops, or the test does
			for asking.Err() == nil {
				if n%3 == 0 {
					if w, err := in.Resource(second).Watch(asking, metav1.ListOptions{}); err == nil {
						<-w.ResultChan()
						w.Stop()
					}
				} else {
					_, _ = in.Resource(second).Namespace("default").List(asking, metav1.ListOptions{})
				}
				select {
				case <-asking.Done():
				case <-time.After(10 * time.Millisecond):
				}
			}
		})
	}
	harness.Eventually(t, "the webhook hangs", func() bool { return hook.called.Load() > 10 })

	began := time.Now()
	for n := range 50 {
		name := fmt.Sprint("c", n)
		if _, err := leader.Kube(two).CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Errorf("another cluster's user: %v", err)
		}
	}
	t.Logf("50 creations in another cluster took %v", time.Since(began).Round(time.Millisecond))
	if took := time.Since(began); took > harness.Patience/4 {
		t.Errorf("50 creations in another cluster took %v", took)
	}
	everywhere := leader.Dynamic("*")
	if list, err := everywhere.Resource(gadgets).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
		t.Errorf("gadgets of all clusters: %v", err)
	}
	began = time.Now()
	if _, err := everywhere.Resource(second).List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("widgets of all clusters were listed although nobody converts them")
	}
	if took := time.Since(began); took > harness.Patience/2 {
		t.Errorf("the list of all clusters' widgets failed after %v", took)
	}
	if err := core.ConfigMaps("default").Delete(t.Context(), "owner", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := core.Namespaces().Delete(t.Context(), "leaving", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	gone := func(key string) func() bool {
		client := etcd.Client(t)
		return func() bool {
			found, err := client.Get(t.Context(), key)
			return err == nil && found.Count == 0
		}
	}
	harness.Eventually(t, "the dependent is collected", gone("/registry/custom/"+one+"/example.com/Widget/default/dependent"))
	harness.Eventually(t, "the namespace is gone", gone("/registry/core/namespaces/"+one+"/leaving"))

	calls := hook.called.Load()
	harness.Eventually(t, "the webhook is called", func() bool { return hook.called.Load() > calls })
	began = time.Now()
	leader.Signal(syscall.SIGTERM)
	harness.Eventually(t, "the other replica leads", next.Leads)
	t.Logf("it leads %v after SIGTERM", time.Since(began).Round(time.Millisecond))
	if code := leader.WaitIn(harness.Patience); code != 0 {
		t.Errorf("it exits with %d", code)
	}
	t.Logf("the leader has exited after %v", time.Since(began).Round(time.Millisecond))
	if took := time.Since(began); took > 9*time.Second { // a call may take 10 s
		t.Errorf("the leader has waited for webhooks: %v", took)
	}
	stop()
	leader.Again()
	leader.WaitReady()

	if err := next.Dynamic("root").Resource(harness.Workspaces).Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the workspace is gone", func() bool {
		_, err := next.Dynamic("root").Resource(harness.Workspaces).Get(t.Context(), "one", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}
