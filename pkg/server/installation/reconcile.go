package installation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

	// of is what was decided by.
	of claim
}

// claim is what a shard says that it has of a logical cluster.
type claim struct {
	shard string
	uid   types.UID
	epoch int64
	// origins are the shards from which it has come, and movedTo the one to which it has moved.
	origins []string
	movedTo string
	// comes: it is not there yet, and isComplete: all of it is. isVacated: it has moved, and objects were removed.
	comes, isComplete, isVacated bool

	path       string
	owner      *corev1alpha1.LogicalClusterOwner
	ownerShard string
}

func claimOf(shard string, lc *corev1alpha1.LogicalCluster) claim {
	return claim{
		shard: shard, uid: lc.UID, epoch: clusters.EpochOf(lc), origins: clusters.OriginsOf(lc), movedTo: clusters.MovedTo(lc).Shard,
		comes: clusters.IsComing(lc), isComplete: lc.Annotations[clusters.CompleteAnnotation] != "", isVacated: lc.Annotations[clusters.VacatedAnnotation] != "",
		path: pathOf(lc), owner: lc.Spec.Owner, ownerShard: clusters.ShardOf(lc, clusters.OwnerShardLabel, shard),
	}
}

// settledAtOnce is how many logical clusters are settled at the same time.
const settledAtOnce = 8

// Reconcile settles where the logical clusters are that have moved to a shard, or away from it, since the backup of
// which its etcd was restored: one that two shards have is given up by that which had it before, and one that its new
// shard has lost is taken back by its former one. tell is called with each, once that is done, or was refused; those
// above come first. With plan nothing is done. All shards must answer, and what they say is believed. It may be called
// again, and meanwhile others may move.
func (a *Admin) Reconcile(ctx context.Context, restored string, plan bool, tell func(Reconciliation)) error {
	all, err := a.members(ctx)
	if err != nil {
		return err
	}
	if memberOf(all, restored) == nil {
		return fmt.Errorf("shard %q %w", restored, errNoMember)
	}
	decided, err := a.decide(ctx, all, restored)
	if err != nil {
		return err
	}
	s := &settler{admin: a, all: all, shards: map[string]*shardClient{}}
	defer s.close()
	if !plan {
		if err := s.connect(); err != nil {
			return err
		}
	}
	var mu sync.Mutex
	unsettled := 0
	for len(decided) > 0 && ctx.Err() == nil { // those of one depth: the Workspaces of the next are in them
		n := slices.IndexFunc(decided, func(r Reconciliation) bool { return r.depth() > decided[0].depth() })
		if n < 0 {
			n = len(decided)
		}
		settling := errgroup.Group{}
		settling.SetLimit(settledAtOnce)
		for _, r := range decided[:n] {
			settling.Go(func() error {
				if r.Why == "" && !plan {
					if err := s.settle(ctx, r); err != nil {
						r.Why = err.Error()
					}
				}
				mu.Lock()
				defer mu.Unlock()
				if r.Why != "" {
					unsettled++
				}
				tell(r)
				return nil
			})
		}
		_ = settling.Wait() // they tell of their errors
		decided = decided[n:]
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("reconcile shard %s: %w", restored, context.Cause(ctx))
	case unsettled > 0:
		return fmt.Errorf("%d workspaces are not settled, as said above: give the command again, or an administrator decides", unsettled)
	}
	return nil
}

func (r Reconciliation) depth() int { return strings.Count(r.Path, ":") }

// decide returns what is to be settled, by path. The shards are asked twice, since each says what it has at another
// moment: what moves meanwhile is decided otherwise the second time.
func (a *Admin) decide(ctx context.Context, all []*corev1alpha1.Shard, restored string) (decided []Reconciliation, err error) {
	var before map[logicalcluster.Name]Reconciliation
	for range 2 {
		found, err := a.claims(ctx, all, restored)
		if err != nil {
			return nil, err
		}
		now := map[logicalcluster.Name]Reconciliation{}
		decided = nil
		for cluster, claims := range found {
			r, ok := reconcile(cluster, claims, restored)
			if !ok {
				continue
			}
			now[cluster] = r
			if b, ok := before[cluster]; ok && b.Shard == r.Shard && b.From == r.From && b.TakenBack == r.TakenBack && b.of.epoch == r.of.epoch {
				decided = append(decided, r)
			}
		}
		if before = now; len(now) == 0 {
			return nil, nil
		}
	}
	slices.SortFunc(decided, func(a, b Reconciliation) int {
		return cmp.Or(cmp.Compare(a.depth(), b.depth()), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Cluster, b.Cluster))
	})
	return decided, nil
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
		return Reconciliation{Path: cmp.Or(at.path, cluster.String()), Cluster: cluster.String(), Shard: at.shard, From: from, Why: why, of: at}, true
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
	why := ""
	if moved[0].isVacated {
		why = "objects were removed there: import it from a backup of that shard"
	}
	r, ok = result(moved[0], moved[0].movedTo, why)
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

// settler settles logical clusters. Several goroutines use it.
type settler struct {
	mover
	admin  *Admin
	all    []*corev1alpha1.Shard
	shards map[string]*shardClient
}

// connect makes a client of each shard.
func (s *settler) connect() error {
	for _, member := range s.all {
		client, err := s.admin.askMember(member, &s.mover)
		if err != nil {
			return err
		}
		s.shards[member.Name] = client
	}
	return nil
}

// settle has the shards do what was decided of one logical cluster.
func (s *settler) settle(ctx context.Context, r Reconciliation) error {
	if !r.TakenBack { // its Workspace follows by itself
		return s.say(ctx, http.MethodPost, r.From, r)
	}
	// It is told first: its leader waits until the shard has the cluster. So nothing is forgotten if this ends in
	// between.
	at, err := s.find(ctx, r)
	if err == nil && at != nil {
		err = s.point(ctx, at, r, r.Shard)
	}
	if err != nil {
		return fmt.Errorf("tell its Workspace: %w", err)
	}
	err = s.say(ctx, http.MethodDelete, r.Shard, r)
	if at != nil && apierrors.IsConflict(err) { // otherwise it may have been done
		undoing, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		err = errors.Join(err, s.point(undoing, at, r, ""))
	}
	return err
}

// say tells a shard what has become of a logical cluster.
func (s *settler) say(ctx context.Context, verb, shard string, r Reconciliation) error {
	of := s.shards[shard]
	_, err := of.do(ctx, of.client.Verb(verb).AbsPath(clusters.RequestPath(clusters.SystemAdmin)+bundle.LeavingPath).Param("cluster", r.Cluster).Param("to", r.Shard))
	return err
}

func (r Reconciliation) workspacePath() string {
	return clusters.RequestPath(logicalcluster.Name(r.of.owner.Cluster)) + "/apis/tenancy.kcp.io/v1alpha1/workspaces/" + r.of.owner.Name
}

// find returns the shard that has the Workspace of a logical cluster: that which it had when it left, or another one,
// if the Workspace has moved since. Nil: there is none any more, and the cluster will be an orphan.
func (s *settler) find(ctx context.Context, r Reconciliation) (*shardClient, error) {
	if r.of.owner == nil {
		return nil, nil
	}
	names := []string{r.of.ownerShard}
	for _, member := range s.all {
		if member.Name != r.of.ownerShard {
			names = append(names, member.Name)
		}
	}
	var away error
	for _, name := range names {
		if s.shards[name] == nil { // it is no member any more
			continue
		}
		ws := &metav1.PartialObjectMetadata{}
		answer, err := s.shards[name].do(ctx, s.shards[name].client.Get().AbsPath(r.workspacePath()))
		if err == nil {
			err = json.Unmarshal(answer, ws)
		}
		status := apierrors.APIStatus(nil)
		switch {
		case err == nil && ws.UID == r.of.owner.UID:
			return s.shards[name], nil
		case errors.As(err, &status) && status.Status().Code == http.StatusMisdirectedRequest:
			away = err
		case err != nil && !apierrors.IsNotFound(err):
			return nil, err
		}
	}
	return nil, away // it is on its way, or its shard has just taken it back, and hears of that in a moment
}

// point writes at the Workspace which shard has its logical cluster again. Empty: nothing is said any more.
func (s *settler) point(ctx context.Context, at *shardClient, r Reconciliation, shard string) error {
	value := any(nil)
	if shard != "" {
		value = shard
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": r.of.owner.UID, "annotations": map[string]any{clusters.ReturnAnnotation: value}}})
	if err != nil {
		return fmt.Errorf("encode what its Workspace says: %w", err)
	}
	_, err = at.do(ctx, at.client.Patch(types.MergePatchType).AbsPath(r.workspacePath()).Body(patch))
	return err
}
