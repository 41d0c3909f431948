package election

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// LeaseClient is the part of coordinationv1client.LeaseInterface that the Elector uses, for the Lease's namespace.
//
// To read the Lease, the Elector lists with a field selector on its name: unlike a get, a list tells the revision at
// which there is no Lease. In mode ForLife it also creates and deletes the Lease that stands for this process's life.
// When it finds dead processes of this machine, it lists all Leases of the namespace once, and deletes those that stood
// for the lives of the dead.
//
// The client needs a connection and a rate limit of its own. If it shared them with the controllers, a busy leader
// could lose its lease. Each call except Watch has a deadline of a third of the renew deadline.
type LeaseClient interface {
	List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}
