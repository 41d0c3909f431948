package election

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// LeaseClient is what the elector needs of coordinationv1client.LeaseInterface, for the Lease's namespace. Reads are
// lists that select the name: unlike a get, a list tells as of which revision the Lease does not exist. In mode ForLife all
// Leases of the namespace are listed once, for what dead processes have left. Create and Delete are also of such objects.
//
// It must have a transport and a rate limit of its own: a leader busy enough to fill a shared one would lose its lease.
// Each call but Watch carries a deadline of a third of the renew deadline.
type LeaseClient interface {
	List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}
