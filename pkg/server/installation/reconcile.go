package installation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/bundle"
)

// Reconciliation is what becomes of a logical cluster that has moved to a shard, or away from it, since the backup of
// which that was restored.
type Reconciliation struct {
	Path    string `json:"path"`
	Cluster string `json:"cluster"`
	// Shard is the one that has it from then on, and From the one that gives it up, or has lost it.
	Shard string `json:"shard"`
	From  string `json:"from"`
	// TakenBack: Shard takes it back, from which it had moved. Otherwise From gives it up.
	TakenBack bool `json:"takenBack"`
	// Why says why nothing is done: an administrator decides. It is empty otherwise.
	Why string `json:"why,omitempty"`

	owner      *corev1alpha1.LogicalClusterOwner
	ownerShard string
}

// claim is what a shard says that it has of a logical cluster.
type claim struct {
	shard string
	uid   types.UID
	epoch int64
	// origins are the shards from which it has come, and movedTo the one to which it has moved.
	origins []string
	movedTo string
	// comes: it is not there yet, and isComplete: all of it is.
	comes, isComplete bool

	path       string
	owner      *corev1alpha1.LogicalClusterOwner
	ownerShard string
}

func claimOf(shard string, lc *corev1alpha1.LogicalCluster) claim {
	return claim{
		shard: shard, uid: lc.UID, epoch: clusters.EpochOf(lc), origins: clusters.OriginsOf(lc), movedTo: clusters.MovedTo(lc).Shard,
		comes: clusters.IsComing(lc), isComplete: lc.Annotations[clusters.CompleteAnnotation] != "",
	}
}

// Reconcile settles where the logical clusters are that have moved to a shard, or away from it, since the backup of
// which its etcd was restored: one that two shards have is given up by that which had it before, and one that its new
// shard has lost is taken back by its former one. tell is called with each, once that is done, or was refused. With
// plan nothing is done. All shards must answer, and what they say is believed. It may be called again.
func (a *Admin) Reconcile(ctx context.Context, restored string, plan bool, tell func(Reconciliation)) error {
	all, err := a.members(ctx)
	if err != nil {
		return err
	}
	if memberOf(all, restored) == nil {
		return fmt.Errorf("shard %q %w", restored, errNoMember)
	}
	found, err := a.claims(ctx, all, restored)
	if err != nil {
		return err
	}
	m, unsettled := &mover{}, 0
	defer m.close()
	for _, cluster := range slices.Sorted(maps.Keys(found)) {
		r, ok := reconcile(cluster, found[cluster], restored)
		if !ok {
			continue
		}
		if r.Why == "" && !plan {
			if err := a.settle(ctx, m, all, r); err != nil {
				r.Why = err.Error()
			}
		}
		if r.Why != "" {
			unsettled++
		}
		tell(r)
		if ctx.Err() != nil {
			return fmt.Errorf("reconcile shard %s: %w", restored, context.Cause(ctx))
		}
	}
	if unsettled > 0 {
		return fmt.Errorf("%d workspaces are not settled, as said above", unsettled)
	}
	return nil
}

// reconcile decides what becomes of a logical cluster, by what all shards say that they have of it. It is pure. ok:
// something is to be done, or to be said.
func reconcile(cluster logicalcluster.Name, all []claim, restored string) (r Reconciliation, ok bool) {
	var there, moved []claim
	// the latest first
	for _, c := range slices.SortedFunc(slices.Values(all), func(a, b claim) int { return cmp.Or(cmp.Compare(b.epoch, a.epoch), cmp.Compare(a.shard, b.shard)) }) {
		switch {
		case c.movedTo != "":
			moved = append(moved, c)
		case !c.comes:
			there = append(there, c)
		}
	}
	result := func(at claim, from, why string) (Reconciliation, bool) {
		return Reconciliation{Path: cmp.Or(at.path, cluster.String()), Cluster: cluster.String(), Shard: at.shard, From: from, Why: why, owner: at.owner, ownerShard: at.ownerShard}, true
	}
	switch {
	case len(there) > 2:
		return result(there[0], there[1].shard, fmt.Sprintf("%d shards say that they have it", len(there)))
	case len(there) == 2 && (there[0].uid != there[1].uid || there[0].epoch == there[1].epoch || !slices.Contains(there[0].origins, there[1].shard)):
		return result(there[0], there[1].shard, "both say that they have it, and neither has it from the other")
	case len(there) == 2:
		return result(there[0], there[1].shard, "")
	case len(there) == 1 && len(moved) > 0 && moved[0].movedTo == there[0].shard && moved[0].epoch > there[0].epoch:
		return result(there[0], moved[0].shard, fmt.Sprintf("it had come back to shard %s, which has it as it was before; shard %s keeps what it had later: export that, or restore a later backup", there[0].shard, moved[0].shard))
	case len(there) > 0 || len(moved) == 0 || moved[0].movedTo != restored && moved[0].shard != restored:
		return r, false
	case slices.ContainsFunc(all, func(c claim) bool { return c.comes && c.isComplete && c.shard == moved[0].movedTo }):
		return r, false // the leader there ends the move
	}
	r, ok = result(moved[0], moved[0].movedTo, "")
	r.TakenBack = true
	return r, ok
}

// claims returns what the shards have of each logical cluster of which the restored one says something, or that has
// moved from it, or to it.
func (a *Admin) claims(ctx context.Context, all []*corev1alpha1.Shard, restored string) (map[logicalcluster.Name][]claim, error) {
	here := map[logicalcluster.Name]claim{} // a shard may have a million, and most are nowhere else
	if err := a.eachCluster(ctx, memberOf(all, restored), func(cluster logicalcluster.Name, lc *corev1alpha1.LogicalCluster) {
		here[cluster] = claimOf(restored, lc)
	}); err != nil {
		return nil, err
	}
	found := map[logicalcluster.Name][]claim{}
	var mu sync.Mutex
	faults := make([]error, len(all))
	var asking sync.WaitGroup
	for n, member := range all {
		if member.Name == restored {
			continue
		}
		asking.Go(func() {
			faults[n] = a.eachCluster(ctx, member, func(cluster logicalcluster.Name, lc *corev1alpha1.LogicalCluster) {
				c := claimOf(member.Name, lc)
				c.path, c.owner, c.ownerShard = pathOf(lc), lc.Spec.Owner, clusters.ShardOf(lc, clusters.OwnerShardLabel, member.Name)
				mu.Lock()
				defer mu.Unlock()
				if _, ok := here[cluster]; ok || c.movedTo == restored || slices.Contains(c.origins, restored) {
					found[cluster] = append(found[cluster], c)
				}
			})
		})
	}
	asking.Wait()
	for cluster := range found {
		if c, ok := here[cluster]; ok {
			found[cluster] = append(found[cluster], c)
		}
	}
	return found, errors.Join(faults...)
}

// settle has the shards do what was decided of one logical cluster.
func (a *Admin) settle(ctx context.Context, m *mover, all []*corev1alpha1.Shard, r Reconciliation) error {
	verb, at := http.MethodPost, r.From
	if r.TakenBack {
		verb, at = http.MethodDelete, r.Shard
	}
	shard, err := a.askMember(memberOf(all, at), m)
	if err != nil {
		return err
	}
	if _, err := shard.do(ctx, shard.client.Verb(verb).AbsPath(clusters.RequestPath(clusters.SystemAdmin)+bundle.LeavingPath).Param("cluster", r.Cluster).Param("to", r.Shard)); err != nil {
		return err
	}
	if !r.TakenBack {
		return nil // its Workspace follows by itself
	}
	return a.point(ctx, all, r)
}

// point tells the Workspace of a logical cluster that was taken back which shard has it.
func (a *Admin) point(ctx context.Context, all []*corev1alpha1.Shard, r Reconciliation) error {
	member := memberOf(all, r.ownerShard)
	if r.owner == nil || member == nil {
		return nil
	}
	clients, err := a.of(member)
	if err != nil {
		return err
	}
	in := clusters.With(ctx, logicalcluster.Name(r.owner.Cluster))
	ws, err := clients.Workspaces.Get(in, r.owner.Name, metav1.GetOptions{})
	if err == nil && (ws.UID != r.owner.UID || clusters.ShardOf(ws, clusters.ShardLabel, member.Name) == r.Shard) {
		return nil // it is another one, or says so already
	}
	if err == nil {
		out := ws.DeepCopy()
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, clusters.ReturnAnnotation, r.Shard)
		_, err = clients.Workspaces.Update(in, out, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("shard %s has taken it back, and Workspace %s of shard %s does not know: annotate that with %s=%s: %w", r.Shard, r.owner.Name, member.Name, clusters.ReturnAnnotation, r.Shard, err)
	}
	return nil
}
