// Command controllerruntime is a controller-runtime manager with leader election and one controller, put together as
// its documentation recommends for a fast failover: the lease is released, and the controller's cache and queue are
// warm on the standby too. The first Reconcile of the process that leads writes, once, which process it is.
package main

import (
	"context"
	"flag"
	"os"
	"strconv"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func main() {
	// controller-runtime has a flag --kubeconfig.
	name := flag.String("name", "", "the name of the Lease, and of the ConfigMap to write")
	work := flag.String("work", "", "the name of the ConfigMap to reconcile")
	every := flag.Duration("every", 0, "write again after each such pause; 0: once")
	flag.Parse()
	ctrl.SetLogger(klog.Background())

	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		LeaderElection:                true,
		LeaderElectionNamespace:       metav1.NamespaceDefault,
		LeaderElectionID:              *name,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 ptr.To(15 * time.Second),
		RenewDeadline:                 ptr.To(10 * time.Second),
		RetryPeriod:                   ptr.To(2 * time.Second),
		Metrics:                       server.Options{BindAddress: "0"},
		Cache:                         cache.Options{DefaultNamespaces: map[string]cache.Config{metav1.NamespaceDefault: {}}},
	})
	if err != nil {
		klog.Fatal(err)
	}
	err = ctrl.NewControllerManagedBy(mgr).
		For(&corev1.ConfigMap{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetName() == *work }))).
		WithOptions(controller.Options{EnableWarmup: ptr.To(true)}).
		Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			object := applycorev1.ConfigMap(*name, metav1.NamespaceDefault).WithData(map[string]string{"term": id, "pid": strconv.Itoa(os.Getpid())})
			return reconcile.Result{RequeueAfter: *every}, mgr.GetClient().Apply(ctx, object, client.FieldOwner("writer"), client.ForceOwnership)
		}))
	if err != nil {
		klog.Fatal(err)
	}
	if err := mgr.Add(standby{mgr}); err != nil {
		klog.Fatal(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		klog.Fatal(err)
	}
	klog.Flush()
}

var id = uuid.NewString()

// standby says when the caches are warm, in the process that leads and in the one that does not.
type standby struct{ manager.Manager }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (standby) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (s standby) Start(ctx context.Context) error {
	if s.GetCache().WaitForCacheSync(ctx) {
		klog.InfoS("Standing by")
	}
	<-ctx.Done()
	return nil
}
