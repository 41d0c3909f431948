package election

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// ErrNoReplica is returned by Forget: no such Lease exists for the replica.
var ErrNoReplica = errors.New("no such replica")

// Forget declares dead a process that holds the lease for life. It deletes the Lease that stands for the life of the
// process of that name (Config.Instance, or Config.Replica of an older version), and a standby then takes the lease.
// The name of a replica is not enough: another process may have it by now, and live. client is for the Leases'
// namespace.
//
// If the process is alive after all, its term is over. Fencing refuses its writes from then on. Without fencing two
// processes may write until that one has noticed.
//
// If no such Lease exists, the error wraps ErrNoReplica and names the processes that have one.
func Forget(ctx context.Context, client LeaseClient, process string) error {
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("cannot list the Leases that stand for the lives of replicas: %w", err)
	}
	found, others := false, []string{}
	for i := range list.Items {
		life := &list.Items[i]
		if !lease.StandsForLife(life) {
			continue
		}
		said := lease.PresenceOf(life)
		if whose := cmp.Or(said.Instance, said.Replica); whose != process {
			others = append(others, whose)
			continue
		}
		found = true
		err := client.Delete(ctx, life.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &life.UID}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("cannot delete Lease %s, which stands for the life of process %s: %w", life.Name, process, err)
		}
	}
	slices.Sort(others)
	switch {
	case found:
		return nil
	case len(others) == 0:
		return fmt.Errorf("%w as %q: no replica holds the lease for life, or could", ErrNoReplica, process)
	default:
		return fmt.Errorf("%w as %q: name the process, because a replica that is started anew keeps its name. Those that can be forgotten are %q", ErrNoReplica, process, others)
	}
}

// sweepLives deletes the Leases that stand for the lives of processes that are known to be dead. It leaves that of the
// lease's holder, because standbys still need it to take the lease. It returns what that holder says of itself.
func (e *Elector) sweepLives(ctx context.Context) (holder lease.Presence, _ error) {
	list, err := e.api.Client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return lease.Presence{}, err
	}
	var errs []error
	var life lease.Life
	for i := range list.Items {
		if l := &list.Items[i]; l.Name == e.api.Name {
			holder, life = lease.PresenceOf(l), lease.LifeOf(l)
		}
	}
	for i := range list.Items {
		l := &list.Items[i]
		if lease.StandsForLife(l) && l.UID != life.UID && e.processLock.knowsDead(lease.PresenceOf(l)) {
			errs = append(errs, e.api.For(l.Name).Delete(ctx, l.UID))
		}
	}
	return holder, errors.Join(errs...)
}
