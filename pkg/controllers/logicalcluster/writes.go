package logicalcluster

import (
	"sync"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/regent-project/regent/pkg/clusters"
)

// writes knows what this controller has written and its cache does not show yet. The events of a new cluster's
// namespaces come before that of its status: without this, half of all new clusters were written a second time, in
// vain.
type writes struct {
	mu       sync.Mutex
	versions map[logicalcluster.Name]string
}

// add takes note of the server's answer to a write.
func (w *writes) add(lc *corev1alpha1.LogicalCluster) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.versions == nil {
		w.versions = map[logicalcluster.Name]string{}
	}
	w.versions[clusters.KeyOf(lc).Cluster] = lc.ResourceVersion
}

// unseen reports whether a later state of the cluster was written than the cached one, which is nil if there is none.
// The event of that write is still to come, and queues the cluster again.
func (w *writes) unseen(cluster logicalcluster.Name, cached *corev1alpha1.LogicalCluster) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	version, ok := w.versions[cluster]
	if !ok {
		return false
	}
	if cached != nil {
		if order, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, version); err == nil && order < 0 {
			return true
		}
	}
	delete(w.versions, cluster)
	return false
}
