package controllers

import (
	"context"
	"sync"

	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
)

// Shards are the other shards of the installation, as this process reads them. Nobody writes to another shard (I9):
// whoever owns an object pulls what it depends on. The caches live as long as the process, and may be stale for as long
// as a shard is not heard.
type Shards struct {
	// Root is the name of the root shard, whose cluster root says who is a member. It may be this shard's own.
	Root string
	// Workspaces are those that other shards have assigned to this one.
	Workspaces *clusters.Foreign[*tenancyv1alpha1.Workspace]
	// LogicalClusters are the clusters that other shards have made for this shard's Workspaces.
	LogicalClusters *clusters.Foreign[*corev1alpha1.LogicalCluster]
	// Members are the Shard objects of each shard: its copies of all of them, and on the root shard those that say
	// who is a member.
	Members *clusters.Foreign[*corev1alpha1.Shard]
	// Contact says which shards are heard.
	Contact *Contact
	// Live reads single objects of other shards, Offers their exports, and Homes finds out which has a logical
	// cluster. They may be nil if there are none.
	Live   ShardReader
	Offers OfferReader
	Homes  ShardFinder
}

// ShardFinder finds the shard and the logical cluster that a path leads to, or of the name of one. It may be this
// shard. The error is a NotFound of k8s.io/apimachinery/pkg/api/errors if no shard has it.
type ShardFinder interface {
	Find(ctx context.Context, path logicalcluster.Path) (shard string, cluster logicalcluster.Name, err error)
}

// Offer is an export of another shard, with the schemas that it names, as that shard has shown them. Their uids are
// those of clusters.ForeignUID. A schema that is not there is missing.
type Offer struct {
	Export  *apisv1alpha2.APIExport
	Schemas map[string]*apisv1alpha1.APIResourceSchema
}

// OfferReader reads exports of other shards, as they are now. Schemas never change: of those in was, which may be nil,
// only the uid is read. The error for an export that does not exist is a NotFound of
// k8s.io/apimachinery/pkg/api/errors.
type OfferReader interface {
	Offer(ctx context.Context, shard string, export clusters.Key, was *Offer) (*Offer, error)
	// Changes returns which exports of a shard have changed.
	Changes(ctx context.Context, shard string) (Changes, error)
}

// Changes are what a replica of another shard tells of its exports.
type Changes struct {
	// Exports have changed in the last minute, or schemas that they name. The value tells the change from others
	// before and after it.
	Exports map[clusters.Key]string
	// All says that there are no others.
	All bool
	// By tells the process from others, which may have heard of other changes.
	By string
}

// ShardReader reads single objects of another shard, as they are now. The error for an object that does not exist is a
// NotFound of k8s.io/apimachinery/pkg/api/errors. That for a LogicalCluster which has moved from that shard is one,
// too, and wraps a clusters.MovedError.
type ShardReader interface {
	Workspace(ctx context.Context, shard string, key clusters.Key) (*tenancyv1alpha1.Workspace, error)
	LogicalCluster(ctx context.Context, shard string, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error)
}

// NewShards returns Shards without any, for a shard of which root is the root shard.
func NewShards(root string, live ShardReader) *Shards {
	return &Shards{
		Root:            root,
		Workspaces:      clusters.NewForeign[*tenancyv1alpha1.Workspace](),
		LogicalClusters: clusters.NewForeign[*corev1alpha1.LogicalCluster](),
		Members:         clusters.NewForeign[*corev1alpha1.Shard](),
		Contact:         &Contact{},
		Live:            live,
	}
}

// Contact says which other shards are heard: there are watches of theirs that have not been broken for long. It is
// ready for use. All methods may be called at any time on any goroutine.
type Contact struct {
	mu        sync.Mutex
	heard     map[string]bool
	wavering  map[string]bool
	followers map[*func(string, bool)]struct{}
	steady    map[*func()]struct{}
}

// Set records whether a shard is heard, and calls the followers if that has changed. It ends what Waver has begun.
func (c *Contact) Set(shard string, heard bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wavering[shard] {
		delete(c.wavering, shard)
		for f := range c.steady {
			(*f)()
		}
	}
	was := c.heard[shard]
	if c.heard == nil {
		c.heard = map[string]bool{}
	}
	c.heard[shard] = heard
	if was == heard {
		return
	}
	for f := range c.followers {
		(*f)(shard, heard)
	}
}

// Waver records that a watch of a shard has just broken. It still counts as heard: most watches are open again at once.
// But it may be dead, and what is assigned to it now would wait for its return.
func (c *Contact) Waver(shard string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wavering == nil {
		c.wavering = map[string]bool{}
	}
	c.wavering[shard] = true
}

// Steady reports whether a shard is heard, and none of its watches has just broken.
func (c *Contact) Steady(shard string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard[shard] && !c.wavering[shard]
}

// FollowSteady calls h when what Waver has begun ends, until remove is called. The rules are those of Follow, whose
// handlers do not get these calls: watches break every few minutes, and those handlers look at all clusters of a shard.
func (c *Contact) FollowSteady(h func()) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.steady == nil {
		c.steady = map[*func()]struct{}{}
	}
	c.steady[&h] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.steady, &h)
	}
}

// Hears reports whether a shard is heard.
func (c *Contact) Hears(shard string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard[shard]
}

// Misses reports whether a shard is known not to be heard. Of one that this process has only begun to read neither is
// known: it is not missed yet.
func (c *Contact) Misses(shard string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	heard, known := c.heard[shard]
	return known && !heard
}

// Follow calls h with the name of each shard that begins or ceases to be heard, until remove is called. h must be
// quick, and call nothing of Contact. When remove returns, h is not running and is not called again.
func (c *Contact) Follow(h func(shard string, heard bool)) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.followers == nil {
		c.followers = map[*func(string, bool)]struct{}{}
	}
	c.followers[&h] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.followers, &h)
	}
}
