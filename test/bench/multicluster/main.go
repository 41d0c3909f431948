// Command multicluster is a manager of multicluster-runtime whose clusters are the namespaces of one server, as in its
// example sharded-namespace, with its own coordinator or with package mcr. It prints each reconcile: the cluster, and
// when that began.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/manager/coordinator/sharded"
	"sigs.k8s.io/multicluster-runtime/pkg/manager/coordinator/sharded/peers"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
	"sigs.k8s.io/multicluster-runtime/providers/namespace"

	"github.com/regent-project/regent/pkg/election/leader"
	"github.com/regent-project/regent/pkg/election/mcr"
)

func main() {
	// controller-runtime has a flag --kubeconfig.
	name := flag.String("name", "", "the name of this process")
	theirs := flag.Bool("sharded", false, "with multicluster-runtime's own coordinator")
	secret := flag.String("probe-secret", "", "what all processes know")
	leases := flag.String("leases", "mcr", "the namespace of the Leases")
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	if err := run(ctrl.SetupSignalHandler(), *name, *leases, *secret, *theirs); err != nil {
		klog.Fatal(err)
	}
	klog.Flush()
}

func run(ctx context.Context, name, leases, secret string, theirs bool) error {
	config := ctrl.GetConfigOrDie()
	config.QPS, config.Burst = -1, -1 // a limit of the client would be what is measured
	host, err := cluster.New(config)
	if err != nil {
		return err
	}
	coordinator, err := coordinate(host, name, leases, secret, theirs)
	if err != nil {
		return err
	}
	mgr, err := mcmanager.New(config, namespace.New(host), manager.Options{Metrics: server.Options{BindAddress: "0"}}, mcmanager.WithCoordinator(coordinator))
	if err != nil {
		return err
	}
	err = mcbuilder.ControllerManagedBy(mgr).Named("example").For(&corev1.ConfigMap{}).
		Complete(mcreconcile.Func(func(_ context.Context, req mcreconcile.Request) (ctrl.Result, error) {
			fmt.Println("reconcile", req.ClusterName, time.Now().UnixNano()) //nolint:forbidigo // whoever started this reads it
			return ctrl.Result{}, nil
		}))
	if err != nil {
		return err
	}
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return host.Start(ctx) })
	both.Go(func() error { return mgr.Start(ctx) })
	return both.Wait()
}

// coordinate returns the coordinator, with its default timings.
func coordinate(host cluster.Cluster, name, leases, secret string, theirs bool) (mcmanager.Coordinator, error) {
	if !theirs {
		return mcr.New(host.GetConfig(), leader.Config{
			Namespace: leases, Name: "example", Replica: name, SecretBytes: []byte(secret), AdvertiseAddress: "127.0.0.1", SucceedUnfenced: true,
		}, mcr.Options{Warm: []client.Object{&corev1.ConfigMap{}}})
	}
	direct, err := client.New(host.GetConfig(), client.Options{Scheme: host.GetScheme()})
	if err != nil {
		return nil, err
	}
	log := ctrl.Log.WithName("coordinator")
	return sharded.New(direct, log, sharded.WithShardLease(leases, "mcr-shard"),
		sharded.WithPeerRegistry(peers.NewLeaseRegistry(direct, leases, "mcr-peer", name, 1, log))), nil
}
