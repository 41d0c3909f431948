// Package shards reads the other shards of the installation: what they have assigned to this one, and what they have
// made for it. It writes nothing there (I9).
package shards

import (
	"context"
	"slices"
	"sync"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"

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
	members := NewMembers(r.open)
	defer members.Close()
	for {
		again := members.Keep(ctx, r.members())
		select {
		case <-ctx.Done():
			return nil
		case <-r.changed:
		case <-again:
		}
	}
}

// Answers reports whether a shard is this one, or is heard. One that this process has only begun to read counts as
// heard.
func (r *Reader) Answers(shard string) bool {
	return shard == r.cfg.Own || !r.shards.Contact.Misses(shard)
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

// open returns what reads one other shard.
func (r *Reader) open(m Member) (Follower, error) {
	p, err := newPeer(r.cfg.Own, r.caller, m)
	if err != nil {
		r.shards.Contact.Set(m.Name, false)
		return Follower{}, err
	}
	r.set(m.Name, p)
	return Follower{Run: func(ctx context.Context) {
		defer r.set(m.Name, nil)
		p.run(ctx, r.shards)
	}}, nil
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

// members returns the other shards, by name.
func (r *Reader) members() map[string]Member {
	out := map[string]Member{}
	r.mu.Lock()
	root := r.root
	r.mu.Unlock()
	if root.Name != r.cfg.Own {
		out[root.Name] = Member{Name: root.Name, URLs: root.URLs}
	}
	for _, shard := range r.cfg.Members.List(clusters.SystemShards) {
		if shard.Name == r.cfg.Own || clusters.IsRemoved(shard) {
			continue
		}
		out[shard.Name] = Member{Name: shard.Name, URLs: root.ReplicasOf(shard.Name, clusters.ReplicasOf(shard)), Authority: shard.Annotations[clusters.AuthorityAnnotation]}
	}
	return out
}
