package election

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrNoReplica is returned by Forget.
var ErrNoReplica = errors.New("no such replica")

// Forget says that the process of the replica of that name (Config.Replica) is dead, by deleting the Lease that stands for its
// life: another takes what it holds for life. If it lives, its term is over, and its writes are refused where they are fenced;
// where they are not, two may write until it finds out. client is for the Leases' namespace.
//
// ErrNoReplica says that there is no such Lease, and whose there are.
func Forget(ctx context.Context, client LeaseClient, replica string) error {
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("cannot list the Leases that stand for the lives of replicas: %w", err)
	}
	found, others := false, []string{}
	for i := range list.Items {
		lease := &list.Items[i]
		if !standsForLife(lease) {
			continue
		}
		if whose := presenceOf(lease).Replica; whose != replica {
			others = append(others, whose)
			continue
		}
		found = true
		err := client.Delete(ctx, lease.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &lease.UID}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("cannot delete Lease %s, which stands for the life of replica %s: %w", lease.Name, replica, err)
		}
	}
	if !found {
		return fmt.Errorf("%w as %q: there are %q", ErrNoReplica, replica, others)
	}
	return nil
}

// standsForLife reports whether lease is one that stands for the life of a process.
func standsForLife(lease *coordinationv1.Lease) bool {
	process, ok := strings.CutPrefix(lease.Name, lifePrefix)
	_, said := saidPresence(lease)
	return ok && said && uuid.Validate(process) == nil
}

// sweepLives deletes what stands for the lives of processes that are known to be dead, but for that of the holder, whose lease is
// taken by all the rules. It returns what the holder says of itself.
func (e *Elector) sweepLives(ctx context.Context) (holder presence, _ error) {
	list, err := e.api.client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return presence{}, err
	}
	var errs []error
	var life owned
	for i := range list.Items {
		if lease := &list.Items[i]; lease.Name == e.api.name {
			holder, life = presenceOf(lease), lifeOf(lease)
		}
	}
	for i := range list.Items {
		lease := &list.Items[i]
		if standsForLife(lease) && lease.UID != life.uid && e.replica.knowsDead(presenceOf(lease)) {
			api := e.api
			api.name = lease.Name
			errs = append(errs, api.delete(ctx, lease.UID))
		}
	}
	return holder, errors.Join(errs...)
}
