package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/regent-project/regent/pkg/clusters"
)

const (
	// followedFor is for how long it is remembered where a workspace leads. One that is deleted, and made anew,
	// leads astray for as long: to a cluster that is gone.
	followedFor = 10 * time.Second
	// rememberedSteps is how many workspaces are remembered, of some 200 bytes.
	rememberedSteps = 8192
)

// step is a workspace of a path.
type step struct {
	from place
	name string
}

// place is a logical cluster, and the shard that has it.
type place struct {
	shard   string
	cluster logicalcluster.Name
}

// Find returns the shard and the logical cluster that a path leads to, wherever it leads on the way. It believes of
// each workspace only the shard that has it: a shard that lies leads astray below its own clusters, and nowhere else.
// The error is NotFound (k8s.io/apimachinery/pkg/api/errors) if there is no such cluster; any other says who does not
// answer. It asks two questions for each workspace of the path that it has not followed in the last seconds.
func (h *Homes) Find(ctx context.Context, path logicalcluster.Path) (shard string, cluster logicalcluster.Name, err error) {
	if clusters.IsSystem(logicalcluster.Name(path.String())) { // every shard has it, and nobody leads there
		return "", "", noCluster(path.String())
	}
	segments := strings.Split(path.String(), ":")
	at, err := h.first(ctx, logicalcluster.Name(segments[0]))
	for _, name := range segments[1:] {
		if err != nil {
			break
		}
		at, err = h.child(ctx, at, name)
	}
	return at.shard, at.cluster, err
}

func noCluster(name string) error {
	return apierrors.NewNotFound(corev1alpha1.Resource("logicalclusters"), name)
}

// first returns where a logical cluster is.
func (h *Homes) first(ctx context.Context, cluster logicalcluster.Name) (place, error) {
	if cluster == clusters.Root {
		return place{h.cfg.Root, cluster}, nil
	}
	if !clusters.IsValidName(cluster) {
		return place{}, noCluster(cluster.String())
	}
	if home, ok := h.cache.Get(cluster); ok && h.mayBe(home.(string)) && h.isStillAt(ctx, place{home.(string), cluster}) {
		return place{home.(string), cluster}, nil
	}
	if _, err := h.here(ctx, cluster); !apierrors.IsNotFound(err) {
		return place{h.cfg.Own, cluster}, err
	}
	who, err := h.whoHas(ctx, cluster)
	if err != nil {
		return place{}, err
	}
	var refused []error
	for _, shard := range who {
		err := h.Check(ctx, shard, cluster)
		if err == nil {
			return place{shard, cluster}, nil
		}
		refused = append(refused, err)
	}
	if err := errors.Join(refused...); err != nil {
		return place{}, err
	}
	return place{}, noCluster(cluster.String())
}

// isStillAt reports whether a shard that was the home of a logical cluster does not say that it is so no more. It asks
// once in a while.
func (h *Homes) isStillAt(ctx context.Context, at place) bool {
	asked := step{from: at}
	if _, ok := h.steps.Get(asked); ok {
		return true
	}
	if _, err := h.logicalCluster(ctx, at.shard, at.cluster); apierrors.IsNotFound(err) {
		return false
	}
	h.steps.Add(asked, at, followedFor)
	return true
}

// whoHas returns the shards that say that they have a logical cluster. The error says which does not answer, if none
// says so.
func (h *Homes) whoHas(ctx context.Context, cluster logicalcluster.Name) ([]string, error) {
	others, err := h.cfg.Members()
	if err != nil {
		return nil, err
	}
	var who []string
	var silent []error
	for n, fault := range askEach(others, func(other string) error {
		_, err := h.logicalCluster(ctx, other, cluster)
		return err
	}) {
		switch {
		case fault == nil:
			who = append(who, others[n])
		case !apierrors.IsNotFound(fault):
			silent = append(silent, fault)
		}
	}
	if len(who) > 0 {
		return who, nil
	}
	return nil, errors.Join(silent...)
}

// child returns where the logical cluster of a workspace is.
func (h *Homes) child(ctx context.Context, parent place, name string) (place, error) {
	if known, ok := h.steps.Get(step{parent, name}); ok {
		return known.(place), nil
	}
	of := clusters.Key{Cluster: parent.cluster, Name: name}
	if !clusters.IsSegment(name) {
		return place{}, noCluster(of.String())
	}
	ws, err := h.workspace(ctx, parent.shard, of)
	if err != nil {
		return place{}, err
	}
	at := place{clusters.HomeOf(ws, parent.shard), logicalcluster.Name(ws.Spec.Cluster)}
	if !clusters.IsValidName(at.cluster) || clusters.IsPermanent(at.cluster) {
		return place{}, noCluster(of.String())
	}
	lc, err := h.logicalCluster(ctx, at.shard, at.cluster)
	if moved, ok := errors.AsType[*clusters.MovedError](err); ok { // just now: the Workspace does not say so yet
		at.shard = moved.To.Shard
		lc, err = h.logicalCluster(ctx, at.shard, at.cluster)
	}
	if err != nil {
		return place{}, err
	}
	if lc.Spec.Owner == nil || lc.Spec.Owner.UID != ws.UID {
		return place{}, noCluster(of.String())
	}
	h.steps.Add(step{parent, name}, at, followedFor)
	return at, nil
}

// logicalCluster reads a LogicalCluster of a shard, which may be this one.
func (h *Homes) logicalCluster(ctx context.Context, shard string, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	if shard == h.cfg.Own {
		return h.here(ctx, cluster)
	}
	if others, err := h.cfg.Members(); err != nil || !slices.Contains(others, shard) {
		return nil, errors.Join(fmt.Errorf("shard %s is no member of the installation", shard), err)
	}
	if !h.cfg.Heard()[shard] {
		return nil, fmt.Errorf("shard %s is not heard: try again when it is", shard)
	}
	return h.cfg.Live.LogicalCluster(ctx, shard, cluster)
}
