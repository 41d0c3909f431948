// Command clientgo is a controller behind client-go's elector, put together as client-go's own example is. All it does
// when it leads is to write, once or again and again, which process it is. With --drop-in the elector is ours in
// client-go's shape.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "where the API server is, and who we are")
	name := flag.String("name", "", "the name of the Lease, and of the ConfigMap to write")
	coordinated := flag.Bool("coordinated", false, "stand as a LeaseCandidate, and be elected (KEP-4355)")
	every := flag.Duration("every", 0, "write again after each such pause; 0: once")
	var ours dropIn
	flag.BoolVar(&ours.use, "drop-in", false, "elect by package clientgo")
	flag.StringVar(&ours.advertise, "advertise-address", "", "with --drop-in: where others dial the probe, succeed without a fence; empty: no probe")
	flag.StringVar(&ours.listen, "listen", "", "with --advertise-address: host and port on which the probe listens")
	flag.StringVar(&ours.secret, "probe-secret", "", "with --advertise-address: what all replicas know")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		klog.Fatal(err)
	}
	client, id := kubernetes.NewForConfigOrDie(config), uuid.NewString()
	if *coordinated {
		const version = "1.37.0" // that of all: the oldest candidate is elected
		candidate, informers, err := leaderelection.NewCandidate(client, metav1.NamespaceDefault, id, *name, version, version, coordinationv1.OldestEmulationVersion)
		if err != nil {
			klog.Fatal(err)
		}
		var running sync.WaitGroup
		defer running.Wait()
		running.Go(func() { candidate.Run(ctx) })
		informers.WaitForCacheSync(ctx.Done())
	}
	lec := leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: *name},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: id},
		},
		Coordinated:     *coordinated,
		ReleaseOnCancel: true,
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				write(ctx, client, *name, id, *every)
				<-ctx.Done()
			},
			OnStoppedLeading: func() {
				if ours.use {
					return // the process stands by again
				}
				klog.Flush()
				os.Exit(0)
			},
			OnNewLeader: func(identity string) {
				if identity != id {
					klog.InfoS("Standing by", "leader", identity)
				}
			},
		},
	}
	if ours.use {
		if err := ours.run(ctx, lec); err != nil {
			klog.Fatal(err)
		}
		return
	}
	leaderelection.RunOrDie(ctx, lec)
}

// write writes until ctx ends.
func write(ctx context.Context, client kubernetes.Interface, name, term string, every time.Duration) {
	for {
		object := applycorev1.ConfigMap(name, metav1.NamespaceDefault).WithData(map[string]string{"term": term, "pid": strconv.Itoa(os.Getpid())})
		_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Apply(ctx, object, metav1.ApplyOptions{FieldManager: "writer", Force: true})
		if ctx.Err() != nil || every == 0 && err == nil {
			return
		}
		if err != nil {
			klog.Fatal(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}
