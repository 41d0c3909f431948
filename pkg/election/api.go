package election

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// leaseAPI is the client, bound to the one Lease, each call but watch bounded.
type leaseAPI struct {
	client          LeaseClient
	cluster         logicalcluster.Name
	namespace, name string
	timeout         time.Duration
}

// writeFunc creates or updates the Lease and returns it as written.
type writeFunc func(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error)

// create and update outlive ctx: a write that is cancelled under way may be committed all the same, and then nobody
// would know that its holder leads nothing. They end when the answer is there, or with the timeout.
func (a leaseAPI) create(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.timeout)
	defer cancel()
	return a.client.Create(ctx, lease, metav1.CreateOptions{})
}

// update is a compare-and-swap on lease's uid and resourceVersion. Unless somebody applied something to the Lease, the server
// keeps no record of who wrote which of its fields: to compute it takes a tenth of each renewal and of each takeover.
// https://kubernetes.io/docs/reference/using-api/server-side-apply/#clearing-managedfields
func (a leaseAPI) update(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.timeout)
	defer cancel()
	if applied := slices.ContainsFunc(lease.ManagedFields, isApplied); len(lease.ManagedFields) > 0 && !applied {
		lease = lease.DeepCopy()
		lease.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	}
	return a.client.Update(ctx, lease, metav1.UpdateOptions{})
}

func isApplied(entry metav1.ManagedFieldsEntry) bool {
	return entry.Operation == metav1.ManagedFieldsOperationApply
}

// delete deletes the Lease of that uid, if it is there. It outlives ctx, as create does.
func (a leaseAPI) delete(ctx context.Context, uid types.UID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.timeout)
	defer cancel()
	err := a.client.Delete(ctx, a.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// read is consistent. No item means that there was no Lease as of the list's revision.
func (a leaseAPI) read(ctx context.Context) (*coordinationv1.LeaseList, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	list, err := a.client.List(ctx, metav1.ListOptions{FieldSelector: a.selector()})
	if err != nil {
		return nil, fmt.Errorf("read the Lease: %w", err)
	}
	return list, nil
}

// watch watches the Lease from revision on. It returns when the watch has begun, or failed to within the timeout.
func (a leaseAPI) watch(ctx context.Context, revision string) (watch.Interface, error) {
	return beginWatch(ctx, a.timeout, a.client.Watch, metav1.ListOptions{
		FieldSelector: a.selector(), ResourceVersion: revision, AllowWatchBookmarks: true,
	})
}

// beginWatch returns when the watch has begun, or failed to within the timeout. The watch ends with ctx, or with Stop, which
// returns when it has ended.
func beginWatch(ctx context.Context, timeout time.Duration, begin func(context.Context, metav1.ListOptions) (watch.Interface, error), opts metav1.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	impatient := time.AfterFunc(timeout, cancel)
	events, err := begin(ctx, opts)
	if impatient.Stop() && err == nil {
		return stopping{events, cancel}, nil
	}
	cancel()
	if err == nil {
		events.Stop()
		err = context.DeadlineExceeded
	}
	return nil, fmt.Errorf("begin the watch: %w", err)
}

// stopping is a watch whose Stop ends its request too.
type stopping struct {
	watch.Interface
	cancel context.CancelFunc
}

// Stop ends the watch.
func (s stopping) Stop() {
	s.cancel()
	s.Interface.Stop()
	for range s.ResultChan() { //nolint:revive // until what delivers has ended
	}
}

func (a leaseAPI) selector() string {
	return fields.OneTermEqualSelector(metav1.ObjectNameField, a.name).String()
}
