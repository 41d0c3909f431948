package definition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// A binding names the shard of its export, and the logical cluster of that may move to another one. When its shard has
// the export no more, all shards are asked which has the logical cluster, and the binding names that one from then on.
// Until they have answered, what is bound stays as it is.

// homes are the exports of which this term has asked where they are, and that are nowhere else than their bindings say.
type homes struct {
	mu    sync.Mutex
	asked map[key]time.Time
}

// fresh returns for how long nobody needs to ask again where an export is. 0: it is to be asked.
func (h *homes) fresh(of key) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(0, offerPeriod-time.Since(h.asked[of]))
}

func (h *homes) set(of key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.asked == nil {
		h.asked = map[key]time.Time{}
	}
	h.asked[of] = time.Now()
}

func (h *homes) forget(of key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.asked, of)
}

// homeOf returns the key of where the export of a binding is.
func (c *controller) homeOf(b binding) key {
	return key{what: aHome, of: controllers.ExportOf(b), shard: cmp.Or(controllers.ExportShardOf(b), c.shard)}
}

// mayHaveMoved reports whether the export of a binding, which its shard does not have, may be on another one. If so,
// the shards are asked.
func (c *controller) mayHaveMoved(b binding) bool {
	of := c.homeOf(b)
	if c.others.Homes == nil || of.of.Cluster == "" || of.shard == c.shard && c.isHere(of.of.Cluster) || c.homes.fresh(of) > 0 {
		return false
	}
	c.Add(of)
	return true
}

// isHere reports whether this shard has a logical cluster, by the cache.
func (c *controller) isHere(cluster logicalcluster.Name) bool {
	if clusters.IsPermanent(cluster) {
		return true
	}
	lc, ok := c.informers.LogicalClusters.Get(clusters.Key{Cluster: cluster, Name: corev1alpha1.LogicalClusterName})
	return ok && !clusters.IsComing(lc) && !clusters.HasMoved(lc)
}

// isRemoved reports whether another shard was removed from the installation. Its workspaces have moved away before.
func (c *controller) isRemoved(shard string) bool {
	s, ok := c.informers.Shards.Get(clusters.Key{Cluster: clusters.SystemShards, Name: shard})
	return ok && clusters.IsRemoved(s)
}

// locate asks where an export is, and has its bindings name that shard.
func (c *controller) locate(ctx context.Context, of key) error {
	waiting := c.naming(of)
	if len(waiting) == 0 || c.others.Homes == nil {
		c.homes.forget(of)
		return nil
	}
	if rest := c.homes.fresh(of); rest > 0 {
		c.AddAfter(of, rest)
		return nil
	}
	at, _, err := c.others.Homes.Find(ctx, logicalcluster.NewPath(of.of.Cluster.String()))
	if _, moves := errors.AsType[*clusters.MovedError](err); moves {
		c.AddAfter(of, offerNews)
		return nil
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("find the shard of APIExport %s of cluster %s: %w", of.of.Name, of.of.Cluster, err)
	}
	if err == nil && at != of.shard {
		return c.rename(ctx, of, waiting, at)
	}
	c.homes.set(of)
	for _, b := range waiting {
		c.Add(key{what: aBinding, of: clusters.KeyOf(b)})
	}
	c.AddAfter(of, wait.Jitter(offerPeriod, 0.1))
	return nil
}

// naming returns the bindings of the range that name an export and its shard.
func (c *controller) naming(of key) (all []binding) {
	for _, b := range c.informers.APIBindings.ByIndex(controllers.ByExport, of.of.String()) {
		if c.Has(key{what: aBinding, of: clusters.KeyOf(b)}) && c.homeOf(b) == of {
			all = append(all, b)
		}
	}
	return all
}

// renamedAtOnce is how many bindings are written in one turn: an export may have thousands.
const renamedAtOnce = 100

// rename has bindings name another shard as that of their export.
func (c *controller) rename(ctx context.Context, of key, all []binding, shard string) error {
	if len(all) > renamedAtOnce {
		all = all[:renamedAtOnce]
		c.Add(of)
	}
	var errs []error
	for _, b := range all {
		out := b.DeepCopy()
		delete(out.Annotations, clusters.ExportShardAnnotation)
		if shard != c.shard {
			metav1.SetMetaDataAnnotation(&out.ObjectMeta, clusters.ExportShardAnnotation, shard)
		}
		_, err := c.clients.Bindings.Update(clusters.With(ctx, clusters.KeyOf(b).Cluster), out, metav1.UpdateOptions{FieldManager: name})
		if err = unlessChanged(err); err != nil {
			errs = append(errs, fmt.Errorf("name the shard of the APIExport of binding %s: %w", clusters.KeyOf(b), err))
		}
	}
	return errors.Join(errs...)
}
