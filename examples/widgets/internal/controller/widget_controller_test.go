package controller_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	shopv1 "github.com/regent-project/regent/examples/widgets/api/v1"
	"github.com/regent-project/regent/examples/widgets/internal/controller"
	"github.com/regent-project/regent/pkg/regenttest"
)

// shared is a server for all tests that do it no harm: each has a workspace of its own.
var shared *regenttest.Server

func TestMain(m *testing.M) {
	os.Exit(regenttest.Main(m, func(s *regenttest.Server) { shared = s }))
}

// workspace makes a workspace with the definition, in which the controller runs until the test ends. It returns a
// client of it.
func workspace(t *testing.T, server *regenttest.Server, name string) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, clientgoscheme.AddToScheme(scheme))
	must(t, shopv1.AddToScheme(scheme))
	config := server.Workspace(t, name).Config
	c, err := client.New(config, client.Options{Scheme: scheme})
	must(t, err)
	define(t, c)
	run(t, config, scheme)
	return c
}

// define creates the definition as it was generated, and returns when it is served.
func define(t *testing.T, c client.Client) {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("..", "..", "config", "crd", "shop.example.com_widgets.yaml"))
	must(t, err)
	definition := &unstructured.Unstructured{}
	must(t, yaml.Unmarshal(file, &definition.Object))
	must(t, c.Create(t.Context(), definition))
	eventually(t, "the definition is served", func() bool { return c.List(t.Context(), &shopv1.WidgetList{}) == nil })
}

// run runs the controller, as main does.
func run(t *testing.T, of *rest.Config, scheme *runtime.Scheme) {
	t.Helper()
	ctrl.SetLogger(zap.New(zap.UseDevMode(true))) // the first call counts
	mgr, err := ctrl.NewManager(of, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		// each test has a controller of that name
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	must(t, err)
	must(t, (&controller.WidgetReconciler{
		Client: mgr.GetClient(), Scheme: scheme, Recorder: mgr.GetEventRecorder("widgets"), Catalogue: "default",
	}).SetupWithManager(mgr))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		must(t, <-ended)
	})
}

// has reports whether a Widget is Ready as its spec is now, and its parts and its entry in the catalogue are there.
func has(t *testing.T, c client.Client, name string, parts int, color string) bool {
	t.Helper()
	widget, entry, made := &shopv1.Widget{}, &corev1.ConfigMap{}, &corev1.ConfigMapList{}
	if c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, widget) != nil ||
		c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "widget.default." + name}, entry) != nil ||
		c.List(t.Context(), made, client.InNamespace("default"), client.MatchingLabels{"shop.example.com/widget": name}) != nil {
		return false
	}
	for _, part := range made.Items {
		if part.Data["color"] != color {
			return false
		}
	}
	ready := meta.FindStatusCondition(widget.Status.Conditions, "Ready")
	return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == widget.Generation && len(made.Items) == parts && entry.Data["color"] == color
}

// isGone reports whether nothing of a Widget is there.
func isGone(t *testing.T, c client.Client, name string) bool {
	t.Helper()
	widgets, all := &shopv1.WidgetList{}, &corev1.ConfigMapList{}
	if c.List(t.Context(), widgets) != nil || c.List(t.Context(), all, client.InNamespace("default")) != nil {
		return false
	}
	for _, m := range all.Items {
		if m.Name == "widget.default."+name || m.Labels["shop.example.com/widget"] == name {
			return false
		}
	}
	return len(widgets.Items) == 0
}

func widget(name string) *shopv1.Widget {
	return &shopv1.Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: shopv1.WidgetSpec{Color: "blue", Replicas: ptr.To[int32](2)}}
}

func TestAWidgetHasWhatItsSpecSaysUntilItGoes(t *testing.T) {
	t.Parallel()
	c := workspace(t, shared, "shop")
	w := widget("w")
	must(t, c.Create(t.Context(), w))
	eventually(t, "two blue parts are there", func() bool { return has(t, c, "w", 2, "blue") })
	must(t, c.Patch(t.Context(), w, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"color":"green","replicas":1}}`))))
	eventually(t, "one green part is there", func() bool { return has(t, c, "w", 1, "green") })
	must(t, c.Delete(t.Context(), w))
	eventually(t, "nothing is left", func() bool { return isGone(t, c, "w") })
}

// Its parts are the garbage collector's, which the shard's leader runs: whoever leads.
func TestAWidgetComesAndGoesWhileTheLeaderOfTheShardIsKilled(t *testing.T) {
	t.Parallel()
	server := regenttest.Start(t, regenttest.Replicas(2))
	c := workspace(t, server, "shop")
	w := widget("w")
	must(t, c.Create(t.Context(), w))
	eventually(t, "two blue parts are there", func() bool { return has(t, c, "w", 2, "blue") })
	server.Leader(t).Kill(t)
	// a request that the dead replica had may have failed
	eventually(t, "it is deleted", func() bool { return client.IgnoreNotFound(c.Delete(t.Context(), w)) == nil })
	eventually(t, "nothing is left", func() bool { return isGone(t, c, "w") })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until something is so: much longer than it may take.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		case <-tick.C:
		}
	}
}
