package shards

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/lru"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

const (
	// rememberedHomes is how many homes are remembered, of some 100 bytes.
	rememberedHomes = 16384
	// askedAtOnce is how many shards are asked at once whether they have a logical cluster.
	askedAtOnce = 16
)

// HomesConfig says what Homes asks.
type HomesConfig struct {
	// Own is the name of this shard, Root that of the root shard.
	Own, Root string
	// Members returns the other shards of the installation. The error says that this replica does not know them
	// yet.
	Members func() ([]string, error)
	// Heard returns which of them are heard.
	Heard func() map[string]bool
	// Memory outlives this process. Nil: what is known is forgotten with it.
	Memory Memory
	// Live reads other shards, and Here this one.
	Live controllers.ShardReader
	Here interface {
		Workspace(ctx context.Context, cluster logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error)
		LogicalCluster(ctx context.Context, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error)
	}
}

// Memory remembers, for all replicas of this shard and beyond their restarts, which shard has a logical cluster. It
// may forget.
type Memory interface {
	// Home returns the shard that has a cluster, or an empty string.
	Home(ctx context.Context, cluster logicalcluster.Name) string
	Remember(ctx context.Context, cluster logicalcluster.Name, shard string)
}

// Homes says whether a logical cluster is on a shard, and does not believe that shard alone: a shard that lies must not
// pass for the home of another one's clusters. A third shard confirms it: the one that has the cluster's Workspace says
// that it has assigned the cluster to that shard. If that is the shard itself, or does not answer, each of the others
// has to say that it does not have the cluster. What was confirmed once is remembered; and beyond this process, if all
// others had to confirm it, because one of them may be down next time. A cluster may come back on another shard than it
// was on before it was deleted: that is confirmed anew, once the shard that had it says that it does not. Make it
// with NewHomes. All methods may be called at any time on any goroutine.
type Homes struct {
	cfg   HomesConfig
	cache *lru.Cache            // shards by cluster
	steps *cache.LRUExpireCache // places by step: where paths have led
}

// NewHomes returns a Homes that remembers nothing.
func NewHomes(cfg HomesConfig) *Homes {
	return &Homes{cfg: cfg, cache: lru.New(rememberedHomes), steps: cache.NewLRUExpireCache(rememberedSteps)}
}

// Check returns an error unless a logical cluster is on another shard.
func (h *Homes) Check(ctx context.Context, shard string, cluster logicalcluster.Name) error {
	if cluster == clusters.Root {
		return same(h.cfg.Root, shard, cluster)
	}
	if home, ok := h.cache.Get(cluster); ok {
		if known, err := h.isKnown(ctx, home.(string), shard, cluster); known || err != nil {
			return err
		}
	}
	if err := h.find(ctx, shard, cluster); err != nil {
		return err
	}
	h.cache.Add(cluster, shard)
	return nil
}

// isKnown reports whether a logical cluster's home, as it was confirmed, is a shard. If it is another one, that has to
// say that it does not have the cluster any more, or be removed, for which it must be empty: then the home is to be
// confirmed anew.
func (h *Homes) isKnown(ctx context.Context, home, shard string, cluster logicalcluster.Name) (bool, error) {
	if home == shard {
		return true, nil
	}
	if !h.mayBe(home) {
		return false, nil
	}
	if home != h.cfg.Own { // this shard is asked anyway
		if err := h.isNotAt(ctx, home, cluster); err != nil {
			return false, fmt.Errorf("%w (%w)", same(home, shard, cluster), err)
		}
	}
	return false, nil
}

// mayBe reports whether a shard is, or may be, a member of the installation.
func (h *Homes) mayBe(shard string) bool {
	others, err := h.cfg.Members()
	return shard == h.cfg.Own || err != nil || slices.Contains(others, shard)
}

func same(home, shard string, cluster logicalcluster.Name) error {
	if home != shard {
		return fmt.Errorf("logical cluster %s is on shard %s, and not on shard %s", cluster, home, shard)
	}
	return nil
}

// find asks whether a logical cluster is on a shard.
func (h *Homes) find(ctx context.Context, shard string, cluster logicalcluster.Name) error {
	switch _, err := h.here(ctx, cluster); {
	case err == nil:
		return same(h.cfg.Own, shard, cluster)
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("this replica cannot read whether it has logical cluster %s: %w", cluster, err)
	}
	says, err := h.cfg.Live.LogicalCluster(ctx, shard, cluster)
	if err != nil {
		return fmt.Errorf("shard %s does not say that it has logical cluster %s: %w", shard, cluster, err)
	}
	if h.isAssigned(ctx, shard, cluster, says) {
		return nil
	}
	if h.cfg.Memory == nil {
		return h.nobodyElse(ctx, shard, cluster)
	}
	if home := h.cfg.Memory.Home(ctx, cluster); home != "" {
		if known, err := h.isKnown(ctx, home, shard, cluster); known || err != nil {
			return err
		}
	}
	if err := h.nobodyElse(ctx, shard, cluster); err != nil {
		return err
	}
	h.cfg.Memory.Remember(ctx, cluster, shard)
	return nil
}

// here returns the LogicalCluster of a cluster of this shard. One that has moved is none.
func (h *Homes) here(ctx context.Context, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	lc, err := h.cfg.Here.LogicalCluster(ctx, cluster)
	if err == nil && clusters.HasMoved(lc) {
		return nil, &goneElsewhere{clusters.MovedError{Cluster: cluster, To: clusters.MovedTo(lc)}}
	}
	return lc, err
}

// isAssigned reports whether another shard than the one that says that it has a logical cluster has assigned the
// cluster to it.
func (h *Homes) isAssigned(ctx context.Context, shard string, cluster logicalcluster.Name, says *corev1alpha1.LogicalCluster) bool {
	parent, owner := says.Labels[clusters.OwnerShardLabel], says.Spec.Owner
	if parent == "" || parent == shard || owner == nil {
		return false
	}
	ws, err := h.workspace(ctx, parent, clusters.Key{Cluster: logicalcluster.Name(owner.Cluster), Name: owner.Name})
	return err == nil && ws.Spec.Cluster == cluster.String() && ws.Labels[clusters.ShardLabel] == shard
}

func (h *Homes) workspace(ctx context.Context, shard string, key clusters.Key) (*tenancyv1alpha1.Workspace, error) {
	if !clusters.IsValidName(key.Cluster) || !clusters.IsSegment(key.Name) { // another shard has made them up
		return nil, fmt.Errorf("%s is the name of no Workspace", key)
	}
	if shard == h.cfg.Own {
		return h.cfg.Here.Workspace(ctx, key.Cluster, key.Name)
	}
	if !h.cfg.Heard()[shard] {
		return nil, fmt.Errorf("shard %s is not heard", shard)
	}
	return h.cfg.Live.Workspace(ctx, shard, key)
}

// NowhereElse returns an error unless each other shard of the installation says that it does not have a logical
// cluster.
func (h *Homes) NowhereElse(ctx context.Context, cluster logicalcluster.Name) error {
	return h.nobodyElse(ctx, h.cfg.Own, cluster)
}

// nobodyElse returns an error unless each of the other shards says that it does not have a logical cluster.
func (h *Homes) nobodyElse(ctx context.Context, shard string, cluster logicalcluster.Name) error {
	others, err := h.cfg.Members()
	if err != nil {
		return err
	}
	return errors.Join(askEach(others, func(other string) error {
		if other == shard {
			return nil
		}
		return h.isNotAt(ctx, other, cluster)
	})...)
}

// askEach asks some shards, several at once, and returns an error for each.
func askEach(shards []string, ask func(shard string) error) []error {
	faults := make([]error, len(shards))
	places := make(chan struct{}, askedAtOnce)
	var asking sync.WaitGroup
	for n, shard := range shards {
		places <- struct{}{}
		asking.Go(func() {
			defer func() { <-places }()
			faults[n] = ask(shard)
		})
	}
	asking.Wait()
	return faults
}

// isNotAt returns an error unless another shard says that it does not have a logical cluster.
func (h *Homes) isNotAt(ctx context.Context, shard string, cluster logicalcluster.Name) error {
	if !h.cfg.Heard()[shard] {
		return fmt.Errorf("shard %s is not heard, and could have logical cluster %s, too: try again when it is", shard, cluster)
	}
	switch _, err := h.cfg.Live.LogicalCluster(ctx, shard, cluster); {
	case err == nil:
		return fmt.Errorf("shard %s has logical cluster %s, too: one of the two lies, or has the other's etcd", shard, cluster)
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("shard %s does not say whether it has logical cluster %s: %w", shard, cluster, err)
	}
	return nil
}

// Members returns the names of the other shards of the installation, whether they are heard or not. The error says that
// the list is not read yet.
func (r *Reader) Members() ([]string, error) {
	select {
	case <-r.cfg.Members.Synced():
	default:
		return nil, errors.New("this replica does not know yet which shards are members of the installation")
	}
	return slices.Sorted(maps.Keys(r.members())), nil
}
