// Package serviceaccount keeps in each namespace what programs expect there, as upstream does: the service account
// default, and the ConfigMap kube-root-ca.crt with the authorities by which clients know the API. Both are made again
// when somebody deletes them, and the ConfigMap's content is restored.
package serviceaccount

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/bootstrap"
	"github.com/regent-project/regent/pkg/controllers/loop"
)

const (
	name = "serviceaccount"
	// workers are few: while many workspaces are made, what makes them Ready comes first.
	workers = 2
	// refusedPause is how long a namespace waits in which nothing can be created: its cluster is being deleted, and
	// the cache does not show it yet.
	refusedPause = time.Second
)

// Descriptor describes the controller to a registry.
func Descriptor() controllers.Descriptor {
	return controllers.Descriptor{Name: name, Needs: []string{bootstrap.Name}, New: construct}
}

// controller reconciles namespaces.
type controller struct {
	*loop.Loop[clusters.Key]
	namespaces      *clusters.Informer[*corev1.Namespace]
	logicalClusters *clusters.Informer[*corev1alpha1.LogicalCluster]
	configMaps      *clusters.Informer[*corev1.ConfigMap]
	accounts        clusters.Cache[*metav1.PartialObjectMetadata]
	kube            kubernetes.Interface
	rootCA          string
}

func construct(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
	if deps.RootCA == "" {
		return nil, controllers.ErrDisabled
	}
	c := &controller{
		namespaces:      deps.Informers.Namespaces,
		logicalClusters: deps.Informers.LogicalClusters,
		configMaps:      deps.Informers.ConfigMaps,
		accounts:        deps.Informers.Metadata[corev1.SchemeGroupVersion.WithResource("serviceaccounts")],
		kube:            deps.Clients.Kube,
		rootCA:          deps.RootCA,
	}
	if c.accounts == nil {
		return nil, fmt.Errorf("serviceaccounts have no metadata informer: the server must run one for each resource it stores")
	}
	c.Loop = loop.New(deps.Range, name, workers, c.reconcile)
	c.Needs(func(key clusters.Key) bool { return c.lacks(key).any() })
	loop.Watch(c.Loop, c.namespaces, func(n *corev1.Namespace) []clusters.Key { return []clusters.Key{clusters.KeyOf(n)} })
	loop.WatchDue(c.Loop, c.logicalClusters, ofBuiltIn, func(lc *corev1alpha1.LogicalCluster) bool {
		return slices.ContainsFunc(ofBuiltIn(lc), func(key clusters.Key) bool { return c.lacksIn(lc, key).any() })
	})
	loop.Follow(c.Loop, c.accounts, func(a *metav1.PartialObjectMetadata) []clusters.Key {
		return namespaceOf(a, clusters.DefaultServiceAccount)
	})
	loop.Follow(c.Loop, c.configMaps, func(m *corev1.ConfigMap) []clusters.Key { return namespaceOf(m, clusters.RootCAConfigMap) })
	return c, nil
}

// ofBuiltIn returns the keys of the namespaces that are built into a logical cluster. What was deleted in these is made
// again.
func ofBuiltIn(lc *corev1alpha1.LogicalCluster) (keys []clusters.Key) {
	if clusters.HasBuiltIn(lc) {
		for _, namespace := range clusters.Namespaces {
			keys = append(keys, clusters.Key{Cluster: clusters.KeyOf(lc).Cluster, Name: namespace})
		}
	}
	return keys
}

// namespaceOf returns the key of an object's namespace, if the object has the name.
func namespaceOf(obj metav1.Object, name string) []clusters.Key {
	if obj.GetName() != name {
		return nil
	}
	key := clusters.KeyOf(obj)
	return []clusters.Key{{Cluster: key.Cluster, Name: key.Namespace}}
}

// lacks returns what a namespace lacks, by what the caches show.
func (c *controller) lacks(key clusters.Key) lack {
	lc, _ := c.logicalClusters.Get(clusters.Key{Cluster: key.Cluster, Name: corev1alpha1.LogicalClusterName})
	return c.lacksIn(lc, key)
}

// lacksIn returns what a namespace of a logical cluster lacks. lc may be nil.
func (c *controller) lacksIn(lc *corev1alpha1.LogicalCluster, key clusters.Key) lack {
	if lc != nil && lc.DeletionTimestamp != nil && !clusters.IsPermanent(key.Cluster) {
		return lack{}
	}
	builtIn := lc != nil && clusters.HasBuiltIn(lc) && slices.Contains(clusters.Namespaces, key.Name)
	in := func(name string) clusters.Key {
		return clusters.Key{Cluster: key.Cluster, Namespace: key.Name, Name: name}
	}
	namespace, stored := c.namespaces.Get(key)
	account, hasAccount := c.accounts.Get(in(clusters.DefaultServiceAccount))
	published, isPublished := c.configMaps.Get(in(clusters.RootCAConfigMap))
	update := func() *corev1.ConfigMap {
		return outdated(clusters.BuiltIn{LogicalCluster: lc, RootCA: c.rootCA}, key.Name)
	}
	switch {
	// as nearly all are: the sweep looks at two of each cluster
	case builtIn && !stored && !hasAccount && !isPublished:
		return lack{update: update()}
	case builtIn && !stored:
		namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Name}}
	case !stored:
		return lack{}
	}
	l := lackOf(namespace, hasAccount && !clusters.IsTombstone(account), published, c.rootCA)
	if builtIn && !hasAccount {
		l.account = nil
	}
	if builtIn && !isPublished {
		l.create, l.update = nil, update()
	}
	return l
}

func (c *controller) reconcile(ctx context.Context, key clusters.Key) error {
	err := c.provide(clusters.With(ctx, key.Cluster), c.lacks(key))
	switch {
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil // the informers have delivered the change, or will, and queue the key again
	case apierrors.IsForbidden(err):
		klog.FromContext(ctx).V(2).Info("Nothing can be created in a namespace", "namespace", key, "err", err)
		c.AddAfter(key, refusedPause)
		return nil
	case err != nil:
		return fmt.Errorf("provide for namespace %s: %w", key, err)
	}
	return nil
}

// provide makes what a namespace lacks. What exists already, though the caches do not show it, is left as it is.
func (c *controller) provide(ctx context.Context, l lack) error {
	if l.account != nil {
		_, err := c.kube.CoreV1().ServiceAccounts(l.account.Namespace).Create(ctx, l.account, metav1.CreateOptions{FieldManager: name})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	if l.remove != nil {
		this := &metav1.Preconditions{UID: &l.remove.UID, ResourceVersion: &l.remove.ResourceVersion}
		return c.kube.CoreV1().ConfigMaps(l.remove.Namespace).Delete(ctx, l.remove.Name, metav1.DeleteOptions{Preconditions: this})
	}
	if l.create != nil {
		_, err := c.kube.CoreV1().ConfigMaps(l.create.Namespace).Create(ctx, l.create, metav1.CreateOptions{FieldManager: name})
		return err
	}
	if l.update != nil {
		_, err := c.kube.CoreV1().ConfigMaps(l.update.Namespace).Update(ctx, l.update, metav1.UpdateOptions{FieldManager: name})
		return err
	}
	return nil
}

var _ controllers.Reporter = (*controller)(nil)
