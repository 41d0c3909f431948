package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
)

// Resolver finds the logical cluster that a path leads to.
type Resolver interface {
	// Resolve returns the name of the logical cluster at path, which is valid and not the wildcard. Errors of
	// k8s.io/apimachinery/pkg/api/errors (NotFound, ServiceUnavailable) are passed on to the client. Before Resolve
	// reads from storage it calls mayRead, and returns its error if there is one.
	Resolve(ctx context.Context, path logicalcluster.Path, mayRead func() error) (logicalcluster.Name, error)
}

// retryAfterSeconds is how long clients are told to wait when the answer is not known at the moment.
const retryAfterSeconds = 1

// Live reads single objects from storage. The error for a missing object is a NotFound of
// k8s.io/apimachinery/pkg/api/errors.
type Live interface {
	Workspace(ctx context.Context, cluster logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error)
	LogicalCluster(ctx context.Context, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error)
}

// Directory resolves paths with the process's informers. On a miss it reads once from storage. So it finds a cluster at
// once that another replica has just made, and a cluster that is gone costs one read instead of a wait.
type Directory struct {
	// Shard is the name of this shard, RootShard that of the shard that has cluster root.
	Shard, RootShard string
	Workspaces       *clusters.Informer[*tenancyv1alpha1.Workspace]
	LogicalClusters  *clusters.Informer[*corev1alpha1.LogicalCluster]
	Live             Live
}

// Resolve implements Resolver. A path is the name of a cluster followed by names of workspaces, each in the cluster
// that the path before it leads to. If it begins in another shard or leads there, it goes on at the last of its
// clusters that was assigned to this shard.
func (d *Directory) Resolve(ctx context.Context, path logicalcluster.Path, mayRead func() error) (logicalcluster.Name, error) {
	segments := splitSegments(path)
	here := 0 // how many segments lead to clusters of this shard, which nobody else decides about
	name, err := d.first(ctx, segments[0], mayRead)
	if err == nil {
		name, here, err = d.descend(ctx, name, segments[1:], path, mayRead)
		here++
	}
	if err == nil || here > 0 && !isMisdirected(err) || errors.Is(err, errMayNotRead) {
		return name, err
	}
	for n := len(segments); n > max(here, 1); n-- {
		if name, ok := d.assigned(strings.Join(segments[:n], ":"), n == len(segments)); ok {
			name, _, err := d.descend(ctx, name, segments[n:], path, mayRead)
			return name, err
		}
	}
	return "", err
}

// descend returns the cluster to which the names of workspaces lead from a cluster on, or an error and how deep it got:
// how many of them there are.
func (d *Directory) descend(ctx context.Context, from logicalcluster.Name, workspaces []string, path logicalcluster.Path, mayRead func() error) (_ logicalcluster.Name, deep int, err error) {
	for n, workspace := range workspaces {
		if from, err = d.child(ctx, from, workspace, path, mayRead); err != nil {
			return "", n, err
		}
	}
	return from, len(workspaces), nil
}

// assigned returns the cluster at path that another shard has assigned to this one. A cluster that is being deleted
// gives way to a new one at its path, and one that has moved away, of which IsHere tells, to any. Nothing leads through
// that: moved says that it may be returned.
func (d *Directory) assigned(path string, moved bool) (logicalcluster.Name, bool) {
	var found, away *corev1alpha1.LogicalCluster
	for _, lc := range d.LogicalClusters.ByIndex(clusters.ByPath, path) {
		if conditions.IsTrue(lc, clusters.ConditionOrphaned) || clusters.IsComing(lc) {
			continue // there may be another one at its path, of an orphan on another shard
		}
		if clusters.HasMoved(lc) {
			away = lc
			continue
		}
		if found == nil || found.DeletionTimestamp != nil && lc.DeletionTimestamp == nil {
			found = lc
		}
	}
	if moved {
		found = cmp.Or(found, away)
	}
	if found == nil {
		return "", false
	}
	return clusters.KeyOf(found).Cluster, true
}

// LogicalCluster returns the LogicalCluster of a cluster, or NotFound.
func (d *Directory) LogicalCluster(ctx context.Context, name logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	return d.logicalCluster(ctx, name, func() error { return nil })
}

// cached returns the LogicalCluster of a cluster as this process has heard of it, which may be old. Of one that comes
// it returns nothing: it may be there by now.
func (d *Directory) cached(name logicalcluster.Name) (*corev1alpha1.LogicalCluster, bool) {
	lc, ok := d.LogicalClusters.Get(clusters.Key{Cluster: name, Name: corev1alpha1.LogicalClusterName})
	return lc, ok && !clusters.IsComing(lc)
}

func (d *Directory) logicalCluster(ctx context.Context, name logicalcluster.Name, mayRead func() error) (*corev1alpha1.LogicalCluster, error) {
	if lc, ok := d.cached(name); ok {
		return lc, nil
	}
	if err := mayRead(); err != nil {
		return nil, err
	}
	return d.Live.LogicalCluster(ctx, name)
}

// first returns the cluster in which a path begins, if it exists.
func (d *Directory) first(ctx context.Context, segment string, mayRead func() error) (logicalcluster.Name, error) {
	name := logicalcluster.Name(segment)
	if clusters.IsSystem(name) {
		return name, nil
	}
	if !clusters.IsValidName(name) { // valid in a path but not as a cluster's name, such as one that is too short
		return "", notFound(name.Path())
	}
	if err := d.awaitArrival(ctx, name); err != nil {
		return "", err
	}
	lc, err := d.logicalCluster(ctx, name, mayRead)
	switch {
	case err == nil && clusters.IsComing(lc):
		return "", NewUnavailable(fmt.Sprintf("logical cluster %q is being taken in, and not there yet: try again in some seconds", name))
	case err == nil: // in any phase: a phase that somebody wrote must not lock out those who can mend it
		return name, nil
	case name == clusters.Root && d.RootShard != d.Shard:
		return "", misdirected(name.Path(), d.RootShard)
	case name == clusters.Root && apierrors.IsNotFound(err):
		return "", errBootstrapping()
	case apierrors.IsNotFound(err):
		return "", notFound(name.Path())
	}
	return "", readError(name.Path(), err)
}

const (
	// arrivalPatience is how long a request waits for a cluster that moves here, and arrivalInterval how often it
	// looks at first: later it looks again after an eighth of the time that it has waited. Whoever moves the
	// cluster needs some milliseconds, from the moment on at which its former shard sends here; others may wait for
	// hours.
	arrivalPatience = 10 * time.Second
	arrivalInterval = 5 * time.Millisecond
)

// awaitArrival returns once this process has not heard of a cluster as one that moves here. It reads nothing.
func (d *Directory) awaitArrival(ctx context.Context, name logicalcluster.Name) error {
	key, began := clusters.Key{Cluster: name, Name: corev1alpha1.LogicalClusterName}, time.Now()
	for {
		lc, ok := d.LogicalClusters.Get(key)
		if !ok || !clusters.IsComing(lc) || clusters.ComingFrom(lc) == (clusters.Move{}) {
			return nil
		}
		waited := time.Since(began)
		if waited > arrivalPatience {
			return NewUnavailable(fmt.Sprintf("logical cluster %q moves here from shard %s, and is not there yet: try again in some seconds", name, clusters.ComingFrom(lc).Shard))
		}
		select {
		case <-ctx.Done():
			return NewUnavailable(context.Cause(ctx).Error())
		case <-time.After(max(arrivalInterval, waited/8)):
		}
	}
}

// IsHere returns a clusters.MovedError for a cluster that has moved to another shard, as far as this process has heard.
// Rights in it are still known: so nobody learns where it is who may not enter it.
func (d *Directory) IsHere(name logicalcluster.Name) error {
	lc, ok := d.LogicalClusters.Get(clusters.Key{Cluster: name, Name: corev1alpha1.LogicalClusterName})
	if ok && clusters.HasMoved(lc) {
		return &clusters.MovedError{Cluster: name, To: clusters.MovedTo(lc)}
	}
	return nil
}

// child returns the cluster of the workspace with the given name in parent.
func (d *Directory) child(ctx context.Context, parent logicalcluster.Name, segment string, path logicalcluster.Path, mayRead func() error) (logicalcluster.Name, error) {
	ws, ok := d.Workspaces.Get(clusters.Key{Cluster: parent, Name: segment})
	if !ok || ws.Spec.Cluster == "" {
		err := mayRead()
		if err != nil {
			return "", err
		}
		if ws, err = d.Live.Workspace(ctx, parent, segment); apierrors.IsNotFound(err) {
			return "", notFound(path)
		} else if err != nil {
			return "", readError(path, err)
		}
	}
	if ws.Spec.Cluster == "" {
		return "", notFound(path)
	}
	if shard := clusters.ShardOf(ws, clusters.ShardLabel, d.Shard); shard != d.Shard {
		if lc, ok := d.cached(logicalcluster.Name(ws.Spec.Cluster)); ok && clusters.HasMoved(lc) {
			return "", &clusters.MovedError{Cluster: logicalcluster.Name(ws.Spec.Cluster), To: clusters.MovedTo(lc)}
		}
		return "", misdirected(path, shard)
	}
	// spec.cluster alone proves nothing: it may be forged or restored from a backup. The cluster must name this
	// workspace as its owner.
	name := logicalcluster.Name(ws.Spec.Cluster)
	lc, err := d.logicalCluster(ctx, name, mayRead)
	if apierrors.IsNotFound(err) || err == nil && (lc.Spec.Owner == nil || lc.Spec.Owner.UID != ws.UID) {
		return "", notFound(path)
	} else if err != nil {
		return "", readError(path, err)
	}
	return name, nil
}

// splitSegments splits a path into the name of a cluster and the names of workspaces. A system cluster has colons in
// its own name, and no workspaces.
func splitSegments(path logicalcluster.Path) []string {
	if clusters.IsSystem(logicalcluster.Name(path.String())) {
		return []string{path.String()}
	}
	return strings.Split(path.String(), ":")
}

func notFound(path logicalcluster.Path) error {
	return NewNotFound(fmt.Sprintf("logical cluster %q not found", path))
}

func isMisdirected(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && status.Status().Code == http.StatusMisdirectedRequest
}

// misdirected is the answer to requests for a cluster of another shard.
func misdirected(path logicalcluster.Path, shard string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusMisdirectedRequest, Reason: "MisdirectedRequest",
		Message: fmt.Sprintf("logical cluster %q is on shard %s: ask a front, or that shard", path, shard),
	}}
}

func readError(path logicalcluster.Path, err error) error {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) || errors.Is(err, errMayNotRead) {
		return err
	}
	return NewUnavailable(fmt.Sprintf("cannot find logical cluster %q at the moment: %v", path, err))
}

// errBootstrapping is the answer to requests for root until the shard's first leader has made it Ready.
func errBootstrapping() error {
	return NewUnavailable("the shard is being bootstrapped: try again in a moment; if this lasts, no replica leads")
}

// NewUnavailable returns a 503 that tells clients when to try again.
func NewUnavailable(message string) error {
	err := apierrors.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}
	return err
}
