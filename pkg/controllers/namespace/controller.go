// Package namespace deletes the content of namespaces that are being deleted, and then removes their finalizer.
package namespace

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
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

// Descriptor describes the controller to a registry.
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
	informers       controllers.Informers
}

func construct(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
	c := &controller{
		namespaces:      deps.Informers.Namespaces,
		logicalClusters: deps.Informers.LogicalClusters,
		kube:            deps.Clients.Kube,
		metadata:        deps.Clients.Metadata,
		informers:       deps.Informers,
		content:         content.Of(deps.Resources, func(r controllers.Resource) bool { return r.Namespaced }),
	}
	c.Loop = loop.New(deps.Range, name, workers, c.reconcile)
	c.Needs(func(key clusters.Key) bool {
		namespace, ok := c.namespaces.Get(key)
		return ok && terminating(namespace)
	})
	loop.Watch(c.Loop, c.namespaces, func(n *corev1.Namespace) []clusters.Key { return []clusters.Key{clusters.KeyOf(n)} })
	for _, r := range c.content {
		inf, ok := deps.Informers.Metadata[r.GVR]
		if !ok {
			return nil, fmt.Errorf("resource %s has no metadata informer: the server must run one for each resource it stores", r.GVR)
		}
		loop.Follow(c.Loop, inf, c.holding)
	}
	loop.Follow(c.Loop, deps.Informers.CustomObjects, func(obj *clusters.CustomObject) []clusters.Key { return c.holding(clusters.Metadata(obj)) })
	return c, nil
}

// holding returns the object's namespace if it is terminating: it may wait for this change.
func (c *controller) holding(obj *metav1.PartialObjectMetadata) []clusters.Key {
	key := clusters.Key{Cluster: clusters.KeyOf(obj).Cluster, Name: obj.Namespace}
	namespace, ok := c.namespaces.Get(key)
	if !ok || !terminating(namespace) {
		return nil
	}
	return []clusters.Key{key}
}

// reconcile deletes the content of a terminating namespace, and finalizes the namespace once live lists show nothing.
// If the whole logical cluster is being deleted, package logicalcluster does this instead. Permanent clusters are never
// emptied: their namespaces are always terminated here, even while a finalizer holds their deleted LogicalCluster.
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
		return nil // the informer has delivered the change, or will, and queues the key again
	case err != nil:
		return fmt.Errorf("terminate namespace %s: %w", key, err)
	}
	return nil
}

// contentOf returns the resources that a cluster may have in its namespaces, custom ones first: whoever owns an object
// of another kind is often one of these.
func (c *controller) contentOf(ctx context.Context, cluster logicalcluster.Name) ([]controllers.Resource, error) {
	custom, err := c.informers.LiveCustomResources(ctx, c.metadata, cluster)
	if err != nil {
		return nil, err
	}
	return append(content.Of(custom, func(r controllers.Resource) bool { return r.Namespaced }), c.content...), nil
}

// terminate reads the namespace from the server first: the one in a stale cache may have gone, and the content of
// another one of its name must not be deleted. Once the server has shown that this one is terminating, only this
// controller or that of its cluster can finalize it, and nothing can be created in it.
func (c *controller) terminate(ctx context.Context, cached *corev1.Namespace) error {
	client := c.kube.CoreV1().Namespaces()
	namespace, err := client.Get(ctx, cached.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && (namespace.UID != cached.UID || !terminating(namespace)):
		return nil
	case err != nil:
		return err
	}
	resources, err := c.contentOf(ctx, clusters.KeyOf(cached).Cluster)
	if err != nil {
		return err
	}
	remaining, failure := content.Purge(ctx, c.metadata, resources, namespace.Name)
	if failure == nil && remaining.Empty() {
		_, err = client.Finalize(ctx, content.Finalized(namespace), metav1.UpdateOptions{FieldManager: name})
	} else if out := reported(namespace, remaining, failure, time.Now()); out != nil {
		_, err = client.UpdateStatus(ctx, out, metav1.UpdateOptions{FieldManager: name})
	}
	err = controllers.IgnoreNotFound(err)
	if failure != nil {
		return errors.Join(failure, err)
	}
	return err
}

var _ controllers.Reporter = (*controller)(nil)
