package server

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/election"
)

// forgetCommand is what operators type to have ForgetReplica called.
const forgetCommand = "regent forget-replica"

// ForgetReplica says that a replica is dead, so that another takes the lease that it holds for life: see election.Forget. config
// leads to the shard's logical cluster system:admin.
func ForgetReplica(ctx context.Context, config *rest.Config, namespace, replica string) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	err = election.Forget(ctx, client.CoordinationV1().Leases(namespace), replica)
	if err != nil && !errors.Is(err, election.ErrNoReplica) {
		return fmt.Errorf("%w (if no replica serves there, give a kubeconfig with the address of one that does)", err)
	}
	return err
}
