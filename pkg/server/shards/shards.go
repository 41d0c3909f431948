// Package shards reads the other shards of the installation: what they have assigned to this one, and what they have
// made for it. It writes nothing there (I9).
package shards

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/server/pki"
)

// Config says which shard reads, and how it finds the others.
type Config struct {
	// Own is the name of this shard.
	Own string
	// Root is the root shard. It has no URLs on the root shard itself. FindRoot tells of others.
	Root pki.RootShard
	// Keys returns what this shard calls others with. It is called with each request.
	Keys Keys
	// Members has this shard's copies of the Shard objects.
	Members *clusters.Informer[*corev1alpha1.Shard]
}

// Reader reads all other shards. Make it with New.
type Reader struct {
	cfg    Config
	caller *Caller
	shards *controllers.Shards
	// changed gets a value when the members are others. Its capacity is 1.
	changed chan struct{}

	mu    sync.Mutex
	root  pki.RootShard
	peers map[string]*peer
}

// New returns a reader. It reads nothing until Run runs.
func New(cfg Config) *Reader {
	registerMetrics()
	r := &Reader{cfg: cfg, caller: NewCaller(cfg.Keys), changed: make(chan struct{}, 1), root: cfg.Root, peers: map[string]*peer{}}
	r.shards = controllers.NewShards(cfg.Root.Name, r)
	return r
}

// Shards returns what is read, for controllers.
func (r *Reader) Shards() *controllers.Shards { return r.shards }

// Run reads from each shard that is a member, as long as it is one, until ctx ends. It returns when all reading has
// ended. Call it once.
func (r *Reader) Run(ctx context.Context) error {
	remove := r.cfg.Members.AddHandler(func(_, _ *corev1alpha1.Shard) { r.touch() })
	defer remove()
	running := map[string]*running{}
	defer func() {
		for _, one := range running {
			one.stop()
		}
		for _, one := range running {
			<-one.ended
		}
	}()
	for {
		r.adjust(ctx, running)
		select {
		case <-ctx.Done():
			return nil
		case <-r.changed:
		}
	}
}

func (r *Reader) touch() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// FindRoot says under which URLs the root shard is from now on. It may be called at any time on any goroutine.
func (r *Reader) FindRoot(urls []string) {
	r.mu.Lock()
	r.root.URLs = slices.Clone(urls)
	r.mu.Unlock()
	r.touch()
}

// running is a peer that is read.
type running struct {
	member member
	stop   context.CancelFunc
	ended  chan struct{}
}

// adjust reads from those that are members now, and from no others.
func (r *Reader) adjust(ctx context.Context, now map[string]*running) {
	wanted := r.members()
	for name, one := range now {
		if !wanted[name].equal(one.member) {
			one.stop()
			<-one.ended
			delete(now, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if now[name] != nil {
			continue
		}
		p, err := newPeer(r.cfg.Own, r.caller, wanted[name])
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot read from a shard: its clusters get no news until this replica restarts or its Shard object changes", "peer", name)
			continue
		}
		peerCtx, stop := context.WithCancel(klog.NewContext(ctx, klog.FromContext(ctx).WithValues("peer", name)))
		one := &running{member: wanted[name], stop: stop, ended: make(chan struct{})}
		now[name] = one
		r.set(name, p)
		go func() {
			defer close(one.ended)
			defer r.set(name, nil)
			p.run(peerCtx, r.shards)
		}()
	}
}

func (r *Reader) set(name string, p *peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p == nil {
		delete(r.peers, name)
		return
	}
	r.peers[name] = p
}

// member is another shard.
type member struct {
	name string
	urls []string
	// authority is the fingerprint of the shard's authority. Empty: any of that name, signed by the installation's.
	authority string
}

func (m member) equal(other member) bool {
	return m.name == other.name && m.authority == other.authority && slices.Equal(m.urls, other.urls)
}

// members returns the other shards, by name.
func (r *Reader) members() map[string]member {
	out := map[string]member{}
	r.mu.Lock()
	root := r.root
	r.mu.Unlock()
	if root.Name != r.cfg.Own {
		out[root.Name] = member{name: root.Name, urls: root.URLs}
	}
	for _, shard := range r.cfg.Members.List(clusters.SystemShards) {
		if shard.Name == r.cfg.Own || clusters.IsRemoved(shard) {
			continue
		}
		out[shard.Name] = member{name: shard.Name, urls: root.ReplicasOf(shard.Name, clusters.ReplicasOf(shard)), authority: shard.Annotations[clusters.AuthorityAnnotation]}
	}
	return out
}
