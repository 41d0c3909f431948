// Command manager is a controller-runtime program that leads again after it has lost the lease. It writes into each
// ConfigMap with the label example.com/greeted whom it greets.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/regent-project/regent/pkg/election/leader"
	"github.com/regent-project/regent/pkg/election/metrics"
	"github.com/regent-project/regent/pkg/election/perterm"
)

func main() {
	cluster := flag.String("cluster", "", "the logical cluster of the Lease, if the server is a Regent shard: then writes are fenced")
	metricsAddress := flag.String("metrics-bind-address", "0", "where to serve metrics; 0: nowhere")
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	if err := run(ctrl.SetupSignalHandler(), *cluster, *metricsAddress); err != nil {
		klog.ErrorS(err, "Cannot go on")
		os.Exit(1)
	}
}

func run(ctx context.Context, cluster, metricsAddress string) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	process, err := ctrl.NewManager(config, ctrl.Options{Metrics: metricsserver.Options{BindAddress: metricsAddress}})
	if err != nil {
		return err
	}
	if err := metrics.Register(ctrlmetrics.Registry); err != nil { // which the manager serves at /metrics
		return err
	}
	election, err := leader.New(config, leader.Config{ //nolint:contextcheck // it starts nothing
		Namespace: "default", Name: "manager.example.com", SecretName: "manager.example.com",
		Cluster: logicalcluster.Name(cluster), Fenced: cluster != "",
	})
	if err != nil {
		return err
	}
	o := perterm.Options{Warm: []client.Object{&corev1.ConfigMap{}}}
	if err := perterm.Add(process, election, o, setUp); err != nil { //nolint:contextcheck // Start gives it one
		return err
	}
	return process.Start(ctx)
}
