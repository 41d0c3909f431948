// Package namespace deletes the content of namespaces that are being deleted, and then lets them go.
package namespace

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/bootstrap"
	"github.com/regent-project/regent/pkg/controllers/content"
	"github.com/regent-project/regent/pkg/controllers/loop"
)

const (
	name    = "namespace"
	workers = 8
)

// Descriptor is the controller's entry for a registry.
func Descriptor() controllers.Descriptor {
	return controllers.Descriptor{Name: name, Needs: []string{bootstrap.Name}, New: construct}
}

type controller struct {
	*loop.Loop[clusters.Key]
	namespaces      *clusters.Informer[*corev1.Namespace]
	logicalClusters *clusters.Informer[*corev1alpha1.LogicalCluster]
	kube            kubernetes.Interface
	metadata        metadata.Interface
	content         []controllers.Resource
}

func construct(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
	c := &controller{
		namespaces:      deps.Informers.Namespaces,
		logicalClusters: deps.Informers.LogicalClusters,
		kube:            deps.Clients.Kube,
		metadata:        deps.Clients.Metadata,
		content:         content.Of(deps.Resources, func(r controllers.Resource) bool { return r.Namespaced }),
	}
	c.Loop = loop.New(name, workers, c.reconcile)
	loop.Watch(c.Loop, c.namespaces, func(n *corev1.Namespace) []clusters.Key { return []clusters.Key{clusters.KeyOf(n)} })
	for _, r := range c.content {
		inf, ok := deps.Informers.Metadata[r.GVR]
		if !ok {
			return nil, fmt.Errorf("resource %s has no metadata informer: the server must run one for each resource it stores", r.GVR)
		}
		loop.Watch(c.Loop, inf, c.holding)
	}
	return c, nil
}

// holding returns the object's namespace if that is terminating: the change may be what it waits for.
func (c *controller) holding(obj *metav1.PartialObjectMetadata) []clusters.Key {
	key := clusters.Key{Cluster: clusters.KeyOf(obj).Cluster, Name: obj.Namespace}
	namespace, ok := c.namespaces.Get(key)
	if !ok || !terminating(namespace) {
		return nil
	}
	return []clusters.Key{key}
}

// reconcile deletes what is in a terminating namespace and, once live lists show nothing, finalizes it. A logical cluster
// that is being deleted is emptied by package logicalcluster, with its namespaces. A permanent one is not: its namespaces go
// from here, even while somebody's finalizer holds its deleted LogicalCluster.
func (c *controller) reconcile(ctx context.Context, key clusters.Key) error {
	namespace, ok := c.namespaces.Get(key)
	if !ok || !terminating(namespace) {
		return nil
	}
	lc, ok := c.logicalClusters.Get(clusters.Key{Cluster: key.Cluster, Name: corev1alpha1.LogicalClusterName})
	if ok && lc.DeletionTimestamp != nil && !clusters.IsPermanent(key.Cluster) {
		return nil
	}
	err := c.terminate(clusters.With(ctx, key.Cluster), namespace)
	switch {
	case apierrors.IsConflict(err):
		klog.FromContext(ctx).V(4).Info("Namespace changed meanwhile", "namespace", key)
		return nil // the informer has brought what changed, or will, and with it the key
	case err != nil:
		return fmt.Errorf("terminate namespace %s: %w", key, err)
	}
	return nil
}

// terminate goes by what the server says: the namespace that a late cache shows terminating may have gone, and another
// have come under its name, whose content is nobody's to delete. Once the server has said that this one still terminates
// nobody but this controller lets it go, or that of its cluster, in which nothing can be created any more.
func (c *controller) terminate(ctx context.Context, cached *corev1.Namespace) error {
	client := c.kube.CoreV1().Namespaces()
	namespace, err := client.Get(ctx, cached.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && (namespace.UID != cached.UID || !terminating(namespace)):
		return nil
	case err != nil:
		return err
	}
	remaining, failure := content.Purge(ctx, c.metadata, c.content, namespace.Name)
	if failure == nil && remaining.Empty() {
		_, err = client.Finalize(ctx, finalized(namespace), metav1.UpdateOptions{FieldManager: name})
	} else if out := reported(namespace, remaining, failure, time.Now()); out != nil {
		_, err = client.UpdateStatus(ctx, out, metav1.UpdateOptions{FieldManager: name})
	}
	if apierrors.IsNotFound(err) {
		err = nil
	}
	if failure != nil {
		return errors.Join(failure, err)
	}
	return err
}

var _ controllers.Reporter = (*controller)(nil)
