// Command widgets is a controller as kubebuilder scaffolds one, which runs against a workspace. What is not stock is
// one line.
package main

import (
	"flag"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	shopv1 "github.com/regent-project/regent/examples/widgets/api/v1"
	"github.com/regent-project/regent/examples/widgets/internal/controller"
	"github.com/regent-project/regent/pkg/election/fence"
)

// The Lease of the election, if there is one, in the workspace.
const (
	leaseNamespace = "default"
	leaseName      = "widgets.shop.example.com"
)

func main() {
	// controller-runtime has a flag --kubeconfig.
	elect := flag.Bool("leader-elect", false, "Run under a leader election, so that several processes can stand by.")
	fenced := flag.Bool("fenced", true, "With --leader-elect, have the shard refuse what this process writes after its term; false only to see what happens then.")
	metrics := flag.String("metrics-bind-address", "0", "Where to serve metrics; 0: nowhere.")
	probes := flag.String("health-probe-bind-address", "0", "Where to serve /healthz and /readyz; 0: nowhere.")
	lease := flag.Duration("lease-duration", 15*time.Second, "How long others wait for a leader that does not renew.")
	renew := flag.Duration("renew-deadline", 10*time.Second, "How long the leader tries to renew before it stops.")
	retry := flag.Duration("retry-period", 2*time.Second, "How often the lease is renewed or tried.")
	logging := zap.Options{Development: true}
	logging.BindFlags(flag.CommandLine)
	flag.Parse()
	logger := zap.New(zap.UseFlagOptions(&logging))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)

	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(shopv1.AddToScheme(scheme))

	config := ctrl.GetConfigOrDie()
	if *elect && *fenced {
		// the one line: every write from here on proves its term
		config.Wrap(fence.Elected(leaseNamespace, leaseName))
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: *metrics}, HealthProbeBindAddress: *probes,
		LeaderElection: *elect, LeaderElectionNamespace: leaseNamespace, LeaderElectionID: leaseName,
		LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry,
	})
	must(err, "make the manager")
	must((&controller.WidgetReconciler{
		Client: mgr.GetClient(), Scheme: mgr.GetScheme(), Recorder: mgr.GetEventRecorder("widgets"), Catalogue: "default",
	}).SetupWithManager(mgr), "make the controller")
	must(mgr.AddHealthzCheck("healthz", healthz.Ping), "add the health check")
	must(mgr.AddReadyzCheck("readyz", healthz.Ping), "add the readiness check")
	must(mgr.Start(ctrl.SetupSignalHandler()), "run")
}

// must ends the process if it cannot go on. A lost lease is such a case: somebody else writes now.
func must(err error, to string) {
	if err != nil {
		ctrl.Log.Error(err, "Cannot "+to)
		os.Exit(1)
	}
}
