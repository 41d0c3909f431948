// Package bootstrap creates what every shard needs: the logical cluster root, and the namespaces of root and
// system:admin. It does so in every term, and again when somebody deletes one of them. It changes no existing object,
// except that it makes root Ready.
package bootstrap

import (
	"context"
	"sync"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/loop"
)

// Name is the controller's name in the registry. Other controllers name it in their Needs.
const Name = "bootstrap"

// Descriptor describes the controller to a registry.
func Descriptor() controllers.Descriptor {
	return controllers.Descriptor{Name: Name, New: construct}
}

type rootClient interface {
	Create(ctx context.Context, obj *corev1alpha1.LogicalCluster, opts metav1.CreateOptions) (*corev1alpha1.LogicalCluster, error)
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1alpha1.LogicalCluster, error)
	UpdateStatus(ctx context.Context, obj *corev1alpha1.LogicalCluster, opts metav1.UpdateOptions) (*corev1alpha1.LogicalCluster, error)
}

type controller struct {
	*loop.Loop[logicalcluster.Name]
	namespaces      *clusters.Informer[*corev1.Namespace]
	logicalClusters *clusters.Informer[*corev1alpha1.LogicalCluster]
	kube            kubernetes.Interface
	client          rootClient
	baseURL         string
	root            bool // this is the root shard, or alone
	ready           chan struct{}

	mu      sync.Mutex
	missing map[logicalcluster.Name]bool // clusters that have not been established yet
}

func construct(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
	c := &controller{
		namespaces:      deps.Informers.Namespaces,
		logicalClusters: deps.Informers.LogicalClusters,
		kube:            deps.Clients.Kube,
		client:          deps.Clients.LogicalClusters,
		baseURL:         deps.BaseURL,
		root:            deps.Others().Root == deps.Shard,
		ready:           make(chan struct{}),
		missing:         map[logicalcluster.Name]bool{},
	}
	c.Loop = loop.New(deps.Range, Name, len(established), c.establish)
	for cluster := range established {
		if c.has(cluster) {
			c.missing[cluster] = true
			c.Add(cluster)
		}
	}
	if len(c.missing) == 0 { // another range has them
		close(c.ready)
	}
	loop.Follow(c.Loop, deps.Informers.Namespaces, func(n *corev1.Namespace) []logicalcluster.Name {
		return c.affected(n)
	})
	loop.Follow(c.Loop, deps.Informers.LogicalClusters, func(lc *corev1alpha1.LogicalCluster) []logicalcluster.Name {
		return c.affected(lc)
	})
	return c, nil
}

// has reports whether the shard must have a cluster, of this range. In an installation only the root shard has root.
func (c *controller) has(cluster logicalcluster.Name) bool {
	_, ok := established[cluster]
	return ok && (c.root || cluster != clusters.Root) && c.Has(cluster)
}

func (c *controller) affected(obj metav1.Object) []logicalcluster.Name {
	cluster := clusters.KeyOf(obj).Cluster
	if !c.has(cluster) {
		return nil
	}
	return []logicalcluster.Name{cluster}
}

// Ready implements controllers.Readier. The channel is closed once everything has been there.
func (c *controller) Ready() <-chan struct{} { return c.ready }

func (c *controller) mark(cluster logicalcluster.Name) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.missing[cluster] {
		return
	}
	delete(c.missing, cluster)
	if len(c.missing) == 0 {
		close(c.ready)
	}
}

var (
	_ controllers.Controller = (*controller)(nil)
	_ controllers.Readier    = (*controller)(nil)
)
