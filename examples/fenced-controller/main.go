// Command fenced-controller is a controller elsewhere: a process of its own, with client-go's stock leader election,
// whose writes the shard refuses as soon as its term is over. README.md says how to run it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// options are the flags.
type options struct {
	kubeconfig, context       string
	namespace, lease          string
	identity                  string
	duration, deadline, retry time.Duration
	period, think             time.Duration
}

func (o *options) addFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "The kubeconfig; empty: as kubectl finds it.")
	flags.StringVar(&o.context, "context", "", "Its context, which selects the logical cluster; empty: the current one.")
	flags.StringVar(&o.namespace, "namespace", "default", "Where the Lease and the ConfigMap are.")
	flags.StringVar(&o.lease, "lease-name", "heartbeat", "The name of the Lease, and of the ConfigMap.")
	flags.DurationVar(&o.duration, "lease-duration", 15*time.Second, "How long candidates wait for a leader that does not renew.")
	flags.DurationVar(&o.deadline, "renew-deadline", 10*time.Second, "How long the leader tries to renew before it stops.")
	flags.DurationVar(&o.retry, "retry-period", 2*time.Second, "How often the lease is renewed or tried.")
	flags.DurationVar(&o.period, "period", time.Second, "How often the ConfigMap is written.")
	flags.DurationVar(&o.think, "think", 0, "How long it takes from deciding on a write to sending it, as in a slow reconcile.")
}

// newIdentity is the host's name, for people, and what makes it new. It must be new for every start of a process:
// client-go gives a lease back to its holder in the same epoch, and then the writes of the process before pass for this
// one's.
func newIdentity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "_" + string(uuid.NewUUID())
}

// config is that of the logical cluster.
func (o *options) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context}).ClientConfig()
}

func main() {
	var o options
	o.addFlags(flag.CommandLine)
	klog.InitFlags(nil)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	klog.Flush()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fenced-controller:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	o.identity = newIdentity()
	config, err := o.config()
	if err != nil {
		return err
	}
	c, err := newCandidate(config, o)
	if err != nil {
		return err
	}
	return c.run(ctx)
}
