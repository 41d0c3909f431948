// Command perterm is command controllerruntime with our adapter: a manager for each term. What each first Reconcile of
// a term writes, once or again and again, is the same.
package main

import (
	"context"
	"flag"
	"os"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/regent-project/regent/pkg/election/leader"
	"github.com/regent-project/regent/pkg/election/perterm"
)

func main() {
	// controller-runtime has a flag --kubeconfig.
	cfg := leader.Config{Namespace: metav1.NamespaceDefault, SecretName: "example-probe"}
	flag.StringVar(&cfg.Name, "name", "", "the name of the Lease, and of the ConfigMap to write")
	flag.BoolVar(&cfg.SucceedUnfenced, "succeed-unfenced", false, "accept that two lead for a moment")
	flag.BoolVar(&cfg.Fenced, "fenced", false, "the server refuses late writes")
	flag.IntVar(&cfg.ProbePort, "probe-port", 0, "port of the probe; 0: any")
	flag.StringVar(&cfg.BindAddress, "bind-address", "", "IP address on which the probe listens")
	cluster := flag.String("cluster", "", "logical cluster of the Lease, beside Regent")
	work := flag.String("work", "", "the name of the ConfigMap to reconcile")
	every := flag.Duration("every", 0, "write again after each such pause; 0: once")
	flag.Parse()
	cfg.Cluster = logicalcluster.Name(*cluster)
	ctrl.SetLogger(klog.Background())
	if err := run(ctrl.SetupSignalHandler(), cfg, *work, *every); err != nil {
		klog.Fatal(err)
	}
	klog.Flush()
}

func run(ctx context.Context, cfg leader.Config, work string, every time.Duration) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	process, err := ctrl.NewManager(config, ctrl.Options{
		Metrics: server.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{metav1.NamespaceDefault: {}}},
	})
	if err != nil {
		return err
	}
	elector, err := leader.New(config, cfg) //nolint:contextcheck // it starts nothing
	if err != nil {
		return err
	}
	options := perterm.Options{Warm: []client.Object{&corev1.ConfigMap{}}}
	if err := perterm.Add(process, elector, options, func(m *perterm.Manager) error { //nolint:contextcheck // Start gives it one
		term := uuid.NewString()
		return ctrl.NewControllerManagedBy(m).
			For(&corev1.ConfigMap{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == work }))).
			Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
				object := applycorev1.ConfigMap(cfg.Name, metav1.NamespaceDefault).WithData(map[string]string{"term": term, "pid": strconv.Itoa(os.Getpid())})
				return reconcile.Result{RequeueAfter: every}, m.GetClient().Apply(ctx, object, client.FieldOwner("writer"), client.ForceOwnership)
			}))
	}); err != nil {
		return err
	}
	return process.Start(ctx)
}
