package front

import (
	"context"
	"maps"
	"slices"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/clusters"
)

// running is a shard that is read.
type running struct {
	*shard
	stop  context.CancelFunc
	ended chan struct{}
}

// reader reads the shards that the root shard lists. Only read uses it.
type reader struct {
	*Front
	// by is the membership by which it reads: it has the root shard's URLs.
	by  *standing
	now map[string]*running
	// changed gets a value when the root shard lists others. Its capacity is 1.
	changed chan struct{}
}

// read keeps the shards as the root shard lists them, and the index as the shards say, until ctx ends.
func (f *Front) read(ctx context.Context) {
	r := &reader{Front: f, by: f.cfg.keys.now(), now: map[string]*running{}, changed: make(chan struct{}, 1)}
	defer func() {
		for _, one := range r.now {
			one.stop()
			<-one.ended
		}
	}()
	for _, saved := range f.saved {
		r.start(ctx, saved.Name, saved.Authority, saved.URLs)
	}
	if r.now[r.by.Root.Name] == nil {
		r.start(ctx, r.by.Root.Name, "", r.by.Root.URLs)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.changed:
			r.adjust(ctx)
		case by := <-f.cfg.keys.changed:
			r.use(ctx, by)
		}
	}
}

// use reads by another membership.
func (r *reader) use(ctx context.Context, by *standing) {
	if by.n <= r.by.n {
		return
	}
	moved := !slices.Equal(by.Root.URLs, r.by.Root.URLs)
	r.by = by
	root := r.now[by.Root.Name]
	switch {
	case root == nil:
		r.start(ctx, by.Root.Name, "", by.Root.URLs)
		return
	case moved: // its Shard object says the rest, once it is heard
		r.move(ctx, root, by.Root.URLs)
	}
	select {
	case <-root.members.Synced():
		r.adjust(ctx)
	default:
	}
}

// start begins to read a shard.
func (r *reader) start(ctx context.Context, name, fingerprint string, urls []string) {
	s, err := newShard(r.cfg, name, fingerprint, r.by.Root.ReplicasOf(name, urls))
	if err != nil {
		klog.FromContext(ctx).Error(err, "A shard cannot be reached until its Shard object changes", "peer", name)
		return
	}
	ctx, stop := context.WithCancel(ctx)
	one := &running{shard: s, stop: stop, ended: make(chan struct{})}
	r.now[name] = one
	r.mu.Lock()
	r.shards[name] = s
	r.mu.Unlock()
	remove := func() {}
	if name == r.by.Root.Name {
		remove = s.members.AddHandler(func(_, _ *corev1alpha1.Shard) {
			select {
			case r.changed <- struct{}{}:
			default:
			}
		})
	}
	go func() {
		defer close(one.ended)
		defer remove()
		s.run(ctx, r.index)
	}()
}

// end ends the reading of a shard, and forgets its clusters.
func (r *reader) end(name string) {
	one := r.now[name]
	one.stop()
	<-one.ended
	delete(r.now, name)
	r.mu.Lock()
	delete(r.shards, name)
	unmeasure(name)
	r.mu.Unlock()
	r.index.forget(name)
}

// move makes requests to a shard go to other URLs.
func (r *reader) move(ctx context.Context, one *running, urls []string) {
	r.mu.Lock()
	one.urls = urls
	r.mu.Unlock()
	if err := one.replicas.move(urls); err != nil {
		klog.FromContext(ctx).Error(err, "A shard stays where it was", "peer", one.name)
	}
}

// tellMembership keeps in mind whether the root shard says that this front, with this membership, is a member. Shards
// refuse it if it is not.
func (r *reader) tellMembership(ctx context.Context, member bool) {
	r.mu.Lock()
	changed := r.removed == member
	r.removed = !member
	r.mu.Unlock()
	if !member && changed {
		klog.FromContext(ctx).Error(nil, "This front is no member of the installation any more: stop it, or give it a new membership (regent front add)")
	}
}

// adjust reads those shards that the root shard lists, and no others. It goes on reading the root shard, which says who
// they are.
func (r *reader) adjust(ctx context.Context) {
	root := r.now[r.by.Root.Name]
	if root == nil {
		return // start has said why
	}
	wanted := map[string]*corev1alpha1.Shard{}
	for _, s := range root.members.List(clusters.Root) {
		if !clusters.IsRemoved(s) {
			wanted[s.Name] = s
		}
	}
	for name, one := range r.now {
		s := wanted[name]
		switch {
		case s == nil && name == r.by.Root.Name:
		case s == nil, s.Annotations[clusters.AuthorityAnnotation] != one.fingerprint:
			r.end(name)
		default:
			if urls := r.by.Root.ReplicasOf(name, clusters.ReplicasOf(s)); !slices.Equal(urls, one.urls) {
				r.move(ctx, one, urls)
			}
		}
	}
	if own := wanted[r.by.Root.Name]; own != nil {
		r.tellMembership(ctx, r.by.authority.IsAuthority(own.Annotations[clusters.FrontAnnotationPrefix+r.by.Member.Name]))
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if r.now[name] == nil {
			r.start(ctx, name, wanted[name].Annotations[clusters.AuthorityAnnotation], clusters.ReplicasOf(wanted[name]))
		}
	}
	r.mu.Lock()
	r.listed = len(wanted) > 0
	r.mu.Unlock()
	r.index.touch() // the next snapshot lists the shards as they are now
}
