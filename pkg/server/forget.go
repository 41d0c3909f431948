package server

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/pkg/election"
)

// forgetCommand is the command with which operators call ForgetReplica.
const forgetCommand = "regent forget-replica"

// ForgetReplica declares a replica dead, so that another one can take the Lease that it holds for life: see
// election.Forget. config must lead to the shard's logical cluster system:admin.
func ForgetReplica(ctx context.Context, config *rest.Config, namespace, replica string) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	err = election.Forget(ctx, client.CoordinationV1().Leases(namespace), replica)
	if err != nil && !errors.Is(err, election.ErrNoReplica) {
		return fmt.Errorf("%w (if that replica does not serve, give --server=https://<host>:<port> of one that does)", err)
	}
	return err
}
