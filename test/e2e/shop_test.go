package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/regent-project/regent/test/e2e/harness"
)

// shelf is the namespace of the Widgets. Their catalogue is in default.
const shelf = "shelf"

var shopWidgets = schema.GroupVersionResource{Group: "shop.example.com", Version: "v1", Resource: "widgets"}

// shop is a workspace in which examples/widgets works, as its users see it: through a replica that lives on.
type shop struct {
	kubectl
	t    *testing.T
	path string
}

// openShop makes the workspace, with the definition as it was generated.
func openShop(t *testing.T, users *harness.Replica, name string) *shop {
	t.Helper()
	users.CreateWorkspace(name)
	users.WaitWorkspace(name)
	s := &shop{kubectl: kubectl{users, "root:" + name}, t: t, path: "root:" + name}
	s.run("apply", "-f", harness.File("examples/widgets/config/crd"))
	mustContain(t, s.run("wait", "--for=condition=Established", "crd/widgets.shop.example.com", "--timeout=60s"), "condition met")
	s.run("create", "namespace", shelf)
	return s
}

// start starts the controller, which has a kubeconfig of the workspace through a replica.
func (s *shop) start(name string, through *harness.Replica, flags ...string) *harness.Process {
	s.t.Helper()
	binary := harness.Program(s.t, "widgets")
	config := through.Config(s.path)
	kubeconfig := clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: config.Host, CertificateAuthority: config.CAFile}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {ClientCertificate: config.CertFile, ClientKey: config.KeyFile}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}
	file := filepath.Join(s.t.TempDir(), name+".kubeconfig")
	if err := clientcmd.WriteToFile(kubeconfig, file); err != nil {
		s.t.Fatal(err)
	}
	return harness.Start(s.t, name, binary, append([]string{"--kubeconfig=" + file}, flags...)...)
}

func widget(name, color string, replicas int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "shop.example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"color": color, "replicas": int64(replicas)},
	}}
}

func (s *shop) create(name, color string, replicas int) {
	s.t.Helper()
	if _, err := s.Dynamic(s.path).Resource(shopWidgets).Namespace(shelf).Create(s.t.Context(), widget(name, color, replicas), metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// trade has users create, change, scale and delete Widgets all the time. The result stops them.
func (s *shop) trade() (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	widgets := s.Dynamic(s.path).Resource(shopWidgets).Namespace(shelf)
	go func() { ended <- tradeUntil(ctx, widgets) }()
	return func() {
		s.t.Helper()
		cancel()
		if err := <-ended; err != nil {
			s.t.Errorf("%s: of the users' own requests failed: %v", s.path, err)
		}
	}
}

func tradeUntil(ctx context.Context, widgets dynamic.ResourceInterface) error {
	name := func(n int) string { return fmt.Sprintf("w-%d", n) }
	for n := 0; ctx.Err() == nil; n++ {
		_, err := widgets.Create(ctx, widget(name(n), "white", 1+n%3), metav1.CreateOptions{})
		if err == nil && n >= 1 {
			_, err = widgets.Patch(ctx, name(n-1), "application/merge-patch+json", []byte(`{"spec":{"color":"green"}}`), metav1.PatchOptions{})
		}
		if err == nil && n >= 2 {
			_, err = widgets.Patch(ctx, name(n-2), "application/merge-patch+json", []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{}, "scale")
		}
		if err == nil && n >= 6 {
			err = widgets.Delete(ctx, name(n-6), metav1.DeleteOptions{})
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// missing returns what is missing of what a Widget wants; empty: nothing.
func (s *shop) missing(name string) string {
	w, err := s.Dynamic(s.path).Resource(shopWidgets).Namespace(shelf).Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	parts, err := s.Kube(s.path).CoreV1().ConfigMaps(shelf).List(s.t.Context(), metav1.ListOptions{LabelSelector: "shop.example.com/widget=" + name})
	if err != nil {
		return err.Error()
	}
	entry, err := s.Kube(s.path).CoreV1().ConfigMaps("default").Get(s.t.Context(), "widget."+shelf+"."+name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	return lacks(w, parts.Items, entry)
}

func lacks(w *unstructured.Unstructured, parts []corev1.ConfigMap, entry *corev1.ConfigMap) string {
	color, _, _ := unstructured.NestedString(w.Object, "spec", "color")
	replicas, _, _ := unstructured.NestedInt64(w.Object, "spec", "replicas")
	observed, _, _ := unstructured.NestedInt64(w.Object, "status", "observedGeneration")
	has, _, _ := unstructured.NestedInt64(w.Object, "status", "replicas")
	if observed != w.GetGeneration() || has != replicas || int64(len(parts)) != replicas || entry.Data["color"] != color || w.GetDeletionTimestamp() != nil {
		return fmt.Sprintf("%s of generation %d: generation %d observed, %d of %d parts, %d according to status, entry %v, deleted: %v",
			w.GetName(), w.GetGeneration(), observed, len(parts), replicas, has, entry.Data, w.GetDeletionTimestamp())
	}
	for _, part := range parts {
		if part.Data["color"] != color || len(part.OwnerReferences) != 1 || part.OwnerReferences[0].UID != w.GetUID() {
			return fmt.Sprintf("%s: %v of %v, want %s", part.Name, part.Data, part.OwnerReferences, color)
		}
	}
	return ""
}

// mustSettle waits until all that is wanted is there, and nothing else.
func (s *shop) mustSettle() {
	s.t.Helper()
	said, last := time.Now(), ""
	harness.Eventually(s.t, s.path+" has what its Widgets want, and nothing else", func() bool {
		last = s.unsettled()
		if last != "" && time.Since(said) > 10*time.Second {
			s.t.Log(last)
			said = time.Now()
		}
		return last == ""
	})
}

func (s *shop) unsettled() string {
	list, err := s.Dynamic(s.path).Resource(shopWidgets).Namespace(shelf).List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	parts := 0
	for n := range list.Items {
		if missing := s.missing(list.Items[n].GetName()); missing != "" {
			return missing
		}
		wanted, _, _ := unstructured.NestedInt64(list.Items[n].Object, "spec", "replicas")
		parts += int(wanted)
	}
	all, err := s.Kube(s.path).CoreV1().ConfigMaps("").List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	has, entries := 0, 0
	for _, m := range all.Items {
		if m.Labels["shop.example.com/widget"] != "" {
			has++
		} else if strings.HasPrefix(m.Name, "widget.") {
			entries++
		}
	}
	if has != parts || entries != len(list.Items) {
		return fmt.Sprintf("%d Widgets want %d parts: there are %d, and %d entries", len(list.Items), parts, has, entries)
	}
	return ""
}

func (s *shop) hasEvent(name, reason string) bool {
	events, err := s.Kube(s.path).CoreV1().Events(shelf).List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.InvolvedObject.Kind == "Widget" && e.InvolvedObject.Name == name && e.Reason == reason {
			return true
		}
	}
	return false
}

// holder is that of the controllers' own Lease.
func (s *shop) holder() string {
	lease, err := s.Kube(s.path).CoordinationV1().Leases("default").Get(s.t.Context(), "widgets.shop.example.com", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return harness.Holder(lease)
}

// kubectlWorks is what users type of whom a controller makes what they want.
func (s *shop) kubectlWorks() {
	t := s.t
	s.run("create", "-n", shelf, "-f", harness.File("examples/widgets/config/samples/widget.yaml"))
	mustContain(t, s.run("wait", "-n", shelf, "--for=condition=Ready", "widget/sample", "--timeout=60s"), "condition met")
	mustContain(t, s.run("scale", "-n", shelf, "widget/sample", "--current-replicas=2", "--replicas=4"), "scaled")
	mustContain(t, s.run("wait", "-n", shelf, "--for=jsonpath={.status.replicas}=4", "widget/sample", "--timeout=60s"), "condition met")
	s.refused(t, "less than or equal to 10", "", "scale", "-n", shelf, "widget/sample", "--replicas=11")
	s.refused(t, "there is not so much red", "", "patch", "-n", shelf, "widget/sample", "--type=merge", "-p", `{"spec":{"color":"red","replicas":6}}`)
	mustContain(t, s.run("get", "-n", shelf, "shop", "--field-selector=spec.color=blue"), "COLOR", "PARTS", "READY", "sample", "blue", "4", "True")
	mustContain(t, s.run("explain", "widgets.spec.replicas"), "FIELD: replicas", "how many parts there are to be")
	mustContain(t, s.run("explain", "widget.status", "--recursive"), "observedGeneration", "lastTransitionTime")
	// What it owns is made again.
	s.run("delete", "cm", "-n", shelf, "sample-3")
	harness.Eventually(t, "the part is made again", func() bool { return s.missing("sample") == "" })
	s.run("delete", "-n", shelf, "widget/sample")
	s.mustSettle()
}
