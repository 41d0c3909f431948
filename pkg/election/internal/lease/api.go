package lease

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// Client is a client for the Leases of one namespace.
type Client interface {
	List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// API reads and writes one Lease. Each call ends within Timeout.
type API struct {
	Client          Client
	Namespace, Name string
	Timeout         time.Duration
}

// For returns the API for another Lease of the namespace.
func (a API) For(name string) API {
	a.Name = name
	return a
}

// Create creates the Lease and returns it as written. Like Update it goes on after the end of ctx: a write that is
// cancelled on its way may be committed all the same, and then nobody would know that its holder leads no term.
func (a API) Create(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.Timeout)
	defer cancel()
	return a.Client.Create(ctx, lease, metav1.CreateOptions{})
}

// Update writes lease by a compare-and-swap on its uid and resourceVersion, and returns the Lease as written. Unless
// somebody has used server-side apply on the Lease, it clears managedFields, because computing them takes a tenth of
// each renewal and of each takeover.
// https://kubernetes.io/docs/reference/using-api/server-side-apply/#clearing-managedfields
func (a API) Update(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.Timeout)
	defer cancel()
	if applied := slices.ContainsFunc(lease.ManagedFields, isApplied); len(lease.ManagedFields) > 0 && !applied {
		lease = lease.DeepCopy()
		lease.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	}
	return a.Client.Update(ctx, lease, metav1.UpdateOptions{})
}

func isApplied(entry metav1.ManagedFieldsEntry) bool {
	return entry.Operation == metav1.ManagedFieldsOperationApply
}

// Delete deletes the Lease if it has that uid. It goes on after the end of ctx, as Create does. It returns nil if there
// is no such Lease.
func (a API) Delete(ctx context.Context, uid types.UID) error {
	return a.deleteIf(ctx, &metav1.Preconditions{UID: &uid})
}

// DeleteUnchanged does what Delete does, if nobody has written the Lease since it was read.
func (a API) DeleteUnchanged(ctx context.Context, read *coordinationv1.Lease) error {
	return a.deleteIf(ctx, &metav1.Preconditions{UID: &read.UID, ResourceVersion: &read.ResourceVersion})
}

func (a API) deleteIf(ctx context.Context, so *metav1.Preconditions) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.Timeout)
	defer cancel()
	err := a.Client.Delete(ctx, a.Name, metav1.DeleteOptions{Preconditions: so})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// TakesWrites reports whether the store takes a write of the Lease now. It tries to create the Lease, which exists. The
// API server then sends etcd a transaction that would put the key only if it did not exist. Like a takeover this needs
// a quorum and free space, but it changes nothing, not even the revision. A dry run, or an update that conflicts, would
// not reach etcd. A deletion would need no space.
//
// If the Lease was deleted a moment ago, it is created without a holder and with the highest epoch.
func (a API) TakesWrites(ctx context.Context, highest int64) bool {
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: a.Name}}
	lease.Spec.LeaseTransitions = ptr.To(int32(highest))
	_, err := a.Client.Create(ctx, lease, metav1.CreateOptions{})
	return apierrors.IsAlreadyExists(err)
}

// Read lists the Lease by a consistent read. The list is empty if there was no Lease at the list's revision.
func (a API) Read(ctx context.Context) (*coordinationv1.LeaseList, error) {
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	list, err := a.Client.List(ctx, metav1.ListOptions{FieldSelector: a.selector()})
	if err != nil {
		return nil, fmt.Errorf("read the Lease: %w", err)
	}
	return list, nil
}

// watch watches the Lease from revision on. It returns when the watch has begun, or has failed to begin within the
// timeout.
func (a API) watch(ctx context.Context, revision string) (watch.Interface, error) {
	return BeginWatch(ctx, a.Timeout, a.Client.Watch, metav1.ListOptions{
		FieldSelector: a.selector(), ResourceVersion: revision, AllowWatchBookmarks: true,
	})
}

// BeginWatch returns when the watch has begun, or has failed to begin within timeout. The watch ends with ctx, or with
// Stop, which returns when it has ended.
func BeginWatch(ctx context.Context, timeout time.Duration, begin func(context.Context, metav1.ListOptions) (watch.Interface, error), opts metav1.ListOptions) (watch.Interface, error) {
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

// stopping is a watch whose Stop also ends its request.
type stopping struct {
	watch.Interface
	cancel context.CancelFunc
}

// Stop ends the watch.
func (s stopping) Stop() {
	s.cancel()
	s.Interface.Stop()
	for range s.ResultChan() { //nolint:revive // until the sender has ended
	}
}

func (a API) selector() string {
	return fields.OneTermEqualSelector(metav1.ObjectNameField, a.Name).String()
}
