// Command candidate is a program with client-go's candidate and coordinated elector, put together as kube-scheduler
// does. It does nothing but say when it leads.
package main

import (
	"context"
	"flag"
	"os/signal"
	"sync"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "where the API server is, and who we are")
	name := flag.String("name", "", "the name of the LeaseCandidate")
	lease := flag.String("lease", "", "the name of the Lease, in namespace default")
	binary := flag.String("binary-version", "", "what we are")
	emulation := flag.String("emulation-version", "", "what we do as if we were")
	release := flag.Bool("release", true, "give the lease up at the end")
	duration := flag.Duration("lease-duration", 15*time.Second, "see client-go")
	renew := flag.Duration("renew-deadline", 10*time.Second, "see client-go")
	retry := flag.Duration("retry-period", 2*time.Second, "see client-go")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		klog.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	candidate, informers, err := leaderelection.NewCandidate(client, metav1.NamespaceDefault, *name, *lease, *binary, *emulation, coordinationv1.OldestEmulationVersion)
	if err != nil {
		klog.Fatal(err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { candidate.Run(ctx) })
	informers.WaitForCacheSync(ctx.Done())

	// A candidate that has lost the lease stands for it again: whoever made way for another is its standby from
	// then on.
	for ctx.Err() == nil {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: *lease},
				Client:     client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: *name},
			},
			Coordinated:     true,
			ReleaseOnCancel: *release,
			LeaseDuration:   *duration,
			RenewDeadline:   *renew,
			RetryPeriod:     *retry,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { klog.InfoS("Leading", "candidate", *name) },
				OnStoppedLeading: func() { klog.InfoS("Not leading", "candidate", *name) },
			},
		})
	}
}
