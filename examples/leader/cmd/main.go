// Command leader is a program for any Kubernetes cluster, of which one replica works: it counts in a ConfigMap, and
// says in which term.
package main

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/kcp-dev/logicalcluster/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/leader"
)

func main() {
	var cfg leader.Config
	kubeconfig := flag.String("kubeconfig", "", "where the API server is; empty: the cluster in which this runs")
	flag.StringVar(&cfg.Namespace, "namespace", "default", "namespace of the Lease, of the Secret, and of the ConfigMap")
	cluster := flag.String("cluster", "", "logical cluster of the Lease, if the server is a Regent shard")
	flag.StringVar(&cfg.Name, "name", "example", "name of the Lease, and of the ConfigMap")
	flag.StringVar(&cfg.SecretName, "secret", "example-probe", "name of the Secret that replicas share; the first one makes it")
	flag.IntVar(&cfg.ProbePort, "probe-port", 0, "port on which replicas hear each other; 0: any")
	flag.StringVar(&cfg.BindAddress, "bind-address", "", "IP address of this machine on which to listen there; empty: the one at which others dial")
	every := flag.Duration("every", time.Second, "how long to pause between two counts")
	flag.BoolVar(&cfg.SucceedUnfenced, "succeed-unfenced", false, "lead a moment after a crash, at the risk that late writes of the one before arrive")
	flag.BoolVar(&cfg.Fenced, "fenced", false, "the server refuses late writes: it is Regent, or has its guard")
	flag.Parse()
	cfg.Cluster = logicalcluster.Name(*cluster)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *every, cfg); err != nil && ctx.Err() == nil {
		klog.ErrorS(err, "Cannot go on")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

func run(ctx context.Context, kubeconfig string, every time.Duration, cfg leader.Config) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	l, err := leader.New(config, cfg) //nolint:contextcheck // it starts nothing
	if err != nil {
		return err
	}
	return l.Run(ctx, func(ctx context.Context, term election.Term) error {
		return count(ctx, leader.ForTerm(ctx, config, term), every, cfg)
	})
}

// count counts until the term ends.
func count(ctx context.Context, config *rest.Config, every time.Duration, cfg leader.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	term := uuid.NewString()
	for n := 0; ; n++ {
		object := applycorev1.ConfigMap(cfg.Name, cfg.Namespace).WithData(map[string]string{"term": term, "pid": strconv.Itoa(os.Getpid()), "count": strconv.Itoa(n)})
		_, err := client.CoreV1().ConfigMaps(cfg.Namespace).Apply(ctx, object, metav1.ApplyOptions{FieldManager: "example", Force: true})
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot count; trying again")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}
