package front

import (
	"context"
	"slices"
	"time"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/shards"
)

// reader reads the shards that the root shard lists. Only read uses it.
type reader struct {
	*Front
	// by is the membership by which it reads: it has the root shard's URLs.
	by      *standing
	members *shards.Members
	// current are the shards that are read, by name. The root shard is always one: it says who the others are.
	current map[string]shards.Member
	// changed gets a value when the root shard lists others. Its capacity is 1.
	changed chan struct{}
}

// read keeps the shards as the root shard lists them, and the index as the shards say, until ctx ends.
func (f *Front) read(ctx context.Context) {
	r := &reader{Front: f, by: f.cfg.keys.now(), changed: make(chan struct{}, 1)}
	root := r.by.Root
	r.current = map[string]shards.Member{root.Name: {Name: root.Name, URLs: root.URLs}}
	for _, saved := range f.fromSnapshot {
		r.current[saved.Name] = shards.Member{Name: saved.Name, URLs: root.ReplicasOf(saved.Name, saved.URLs), Authority: saved.Authority}
	}
	r.members = shards.NewMembers(r.open)
	defer r.members.Close()
	for {
		again := r.adjust(ctx)
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
		case <-again:
		case by := <-f.cfg.keys.changed:
			r.use(by)
		}
	}
}

// use reads by another membership.
func (r *reader) use(by *standing) {
	if by.n <= r.by.n {
		return
	}
	if !slices.Equal(by.Root.URLs, r.by.Root.URLs) { // its Shard object says the rest, once it is heard
		root := r.current[by.Root.Name]
		root.URLs = by.Root.URLs
		r.current[root.Name] = root
	}
	r.by = by
}

// open returns what reads a shard, which can be asked from now on.
func (r *reader) open(m shards.Member) (shards.Follower, error) {
	isRoot := m.Name == r.by.Root.Name
	s, err := newShard(r.cfg, m.Name, m.Authority, m.URLs)
	if err != nil && isRoot { // without it nothing is mended: those of a snapshot may be faulty
		s, err = newShard(r.cfg, m.Name, m.Authority, r.by.Root.URLs)
	}
	if err != nil {
		return shards.Follower{}, err
	}
	r.mu.Lock()
	r.shards[m.Name] = s
	r.mu.Unlock()
	run := func(ctx context.Context) {
		if isRoot {
			defer s.members.AddHandler(func(_, _ *corev1alpha1.Shard) { r.touch() })()
		}
		s.run(ctx, r.index)
	}
	return shards.Follower{Run: run, Move: func(urls []string) error { return r.move(s, urls) }, Forget: func() { r.forget(m.Name) }}, nil
}

func (r *reader) touch() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// forget drops a shard, and its clusters.
func (r *reader) forget(name string) {
	r.mu.Lock()
	delete(r.shards, name)
	unmeasure(name)
	r.mu.Unlock()
	r.index.forget(name)
}

// move makes requests to a shard go to other URLs.
func (r *reader) move(s *shard, urls []string) error {
	if err := s.replicas.move(urls); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.urls = urls
	return nil
}

// tellMembership keeps in mind whether the root shard says that this front, with this membership, is a member. Shards
// refuse it if it is not.
func (r *reader) tellMembership(ctx context.Context, member bool) {
	r.mu.Lock()
	changed := r.isRemoved == member
	r.isRemoved = !member
	r.mu.Unlock()
	if !member && changed {
		klog.FromContext(ctx).Error(nil, "This front is no member of the installation any more: stop it, or give it a new membership (regent front add)")
	}
}

// adjust reads the shards that the root shard lists, if that has been heard, and otherwise those that were read before.
// again says when to call it again: see Members.Keep.
func (r *reader) adjust(ctx context.Context) (again <-chan time.Time) {
	listed, hears := r.list(ctx)
	again = r.members.Keep(ctx, r.current)
	if hears {
		r.mu.Lock()
		r.hasList = listed
		r.mu.Unlock()
		r.index.touch() // the next snapshot lists the shards as they are now
	}
	return again
}

// list takes over what the root shard lists. hears says whether that has been heard yet, and listed
// whether it lists any.
func (r *reader) list(ctx context.Context) (listed, hears bool) {
	root, ok := r.shard(r.by.Root.Name)
	if !ok {
		return false, false
	}
	all := root.members.List(clusters.Root) // waits for a list that is being taken over
	select {
	case <-root.members.Synced():
	default:
		return false, false
	}
	current := map[string]shards.Member{}
	for _, s := range all {
		if !clusters.IsRemoved(s) {
			current[s.Name] = shards.Member{Name: s.Name, URLs: r.by.Root.ReplicasOf(s.Name, clusters.ReplicasOf(s)), Authority: s.Annotations[clusters.AuthorityAnnotation]}
		}
		if s.Name == r.by.Root.Name && !clusters.IsRemoved(s) {
			r.tellMembership(ctx, r.by.authority.IsAuthority(s.Annotations[clusters.FrontAnnotationPrefix+r.by.Member.Name]))
		}
	}
	listed = len(current) > 0
	if _, ok := current[r.by.Root.Name]; !ok {
		current[r.by.Root.Name] = r.current[r.by.Root.Name]
	}
	r.current = current
	return listed, true
}
