package installation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/regent-project/regent/pkg/clusters"
)

// Drain moves all logical clusters of a shard to others, a number of them at once: each to the one that then has the
// least, of those named, or of all that are not cordoned. It cordons the shard first, and pauses before each next one.
// moved is called with each, or with the path and the error of one that has stayed; then others go on; of is how many
// there are. It may be called again.
func (a *Admin) Drain(ctx context.Context, name string, to []string, atOnce int, pause time.Duration, moved func(one *Moved, of int, err error)) error {
	targets, err := a.targets(ctx, name, to)
	if err != nil {
		return err
	}
	if err := a.Cordon(ctx, name, true); err != nil {
		return err
	}
	all, err := a.members(ctx)
	if err != nil {
		return err
	}
	if err := a.awaitCordon(ctx, all, name); err != nil {
		return err
	}
	leaving, err := a.movable(ctx, all, name)
	if err != nil {
		return err
	}
	places := make(chan struct{}, max(atOnce, 1))
	var moving sync.WaitGroup
	var mu sync.Mutex
	stayed := 0
	for n, cluster := range leaving {
		if n > 0 && pause > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
		if ctx.Err() != nil {
			break
		}
		select {
		case <-ctx.Done():
		case places <- struct{}{}:
			moving.Go(func() {
				defer func() { <-places }()
				to := targets.take()
				one, err := a.Move(ctx, cluster.Path(), to, nil)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					stayed++
				}
				moved(one, len(leaving), err)
			})
		}
	}
	moving.Wait()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("drain shard %s: %w", name, context.Cause(ctx))
	case stayed > 0:
		return fmt.Errorf("%d of %d workspaces of shard %s did not move: drain it again", stayed, len(leaving), name)
	}
	return nil
}

// movable returns the logical clusters that a shard has, but for those that are its own.
func (a *Admin) movable(ctx context.Context, all []*corev1alpha1.Shard, name string) (names []logicalcluster.Name, err error) {
	member := memberOf(all, name)
	if member == nil {
		return nil, fmt.Errorf("shard %q %w", name, errNoMember)
	}
	err = a.eachCluster(ctx, member, func(cluster logicalcluster.Name, lc *corev1alpha1.LogicalCluster) {
		if !clusters.HasMoved(lc) && !clusters.IsComing(lc) {
			names = append(names, cluster)
		}
	})
	return names, err
}

// memberOf returns the member of that name, nil if there is none.
func memberOf(all []*corev1alpha1.Shard, name string) *corev1alpha1.Shard {
	for _, one := range all {
		if one.Name == name {
			return one
		}
	}
	return nil
}

// eachCluster calls visit with each LogicalCluster that a shard has, but for those that are its own.
func (a *Admin) eachCluster(ctx context.Context, member *corev1alpha1.Shard, visit func(logicalcluster.Name, *corev1alpha1.LogicalCluster)) error {
	clients, err := a.of(member)
	if err != nil {
		return err
	}
	everywhere := clusters.With(ctx, clusters.Wildcard)
	list := pager.New(pager.SimplePageFunc(func(opts metav1.ListOptions) (runtime.Object, error) {
		return clients.LogicalClusters.List(everywhere, opts)
	}))
	err = list.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		if lc, ok := obj.(*corev1alpha1.LogicalCluster); ok && !clusters.IsPermanent(logicalcluster.From(lc)) {
			visit(logicalcluster.From(lc), lc)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("shard %s does not say what it has: %w", member.Name, err)
	}
	return nil
}

// takers are shards that take logical clusters, with how many each has.
type takers struct {
	mu  sync.Mutex
	has map[string]int64
}

// targets returns the shards to which those of another one go.
func (a *Admin) targets(ctx context.Context, from string, to []string) (*takers, error) {
	all, err := a.List(ctx)
	if err != nil {
		return nil, err
	}
	out := &takers{has: map[string]int64{}}
	for _, s := range all {
		named := slices.Contains(to, s.Name)
		switch {
		case s.Name == from && named:
			return nil, fmt.Errorf("shard %s cannot take its own workspaces", from)
		case s.Name == from, len(to) > 0 && !named, len(to) == 0 && (s.Cordoned || s.Fault != ""):
		case s.Fault != "":
			return nil, fmt.Errorf("shard %s does not answer: %s", s.Name, s.Fault)
		default:
			out.has[s.Name] = s.Clusters
		}
	}
	for _, name := range to {
		if _, ok := out.has[name]; !ok {
			return nil, fmt.Errorf("shard %q is no member of the installation: regent shard list", name)
		}
	}
	if len(out.has) == 0 {
		return nil, errors.New("there is no shard that takes them: add one, or uncordon one")
	}
	return out, nil
}

// take returns the shard that has the least, and counts one more for it.
func (t *takers) take() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	least := ""
	for name, n := range t.has {
		if least == "" || n < t.has[least] || n == t.has[least] && name < least {
			least = name
		}
	}
	t.has[least]++
	return least
}
