// Command shortest is the shortest program that leads, against the shard of `make run`: of those that run one says, in
// a ConfigMap, that it works. docs/EMBED.md shows it whole.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/leader"
)

func main() { klog.InfoS("The election has ended", "cause", lead()) }

func lead() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	l, err := leader.New(config, leader.Config{
		Namespace: "default", Name: "shortest", SecretName: "shortest-probe",
		Fenced: true, Cluster: "root", // the server is Regent; else: SucceedUnfenced: true
	})
	if err != nil {
		return err
	}
	return l.Run(ctx, func(ctx context.Context, term election.Term) error {
		client, err := kubernetes.NewForConfig(leader.ForTerm(ctx, config, term)) // not to be forgotten: 1
		if err != nil {
			return err
		}
		as := metav1.ApplyOptions{FieldManager: "shortest"}
		for {
			sign := corev1.ConfigMap("shortest", "default").WithData(map[string]string{"now": time.Now().String()})
			if _, err := client.CoreV1().ConfigMaps("default").Apply(ctx, sign, as); err != nil {
				return err // the term ends, and another process leads
			}
			select {
			case <-ctx.Done():
				return nil // not to be forgotten: 2
			case <-time.After(time.Second):
			}
		}
	})
}
