package history

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
)

// Keys of what makes the tree, below the prefix that is recorded.
const (
	workspaceKeys      = "/tenancy.kcp.io/workspaces/"
	logicalClusterKeys = "/core.kcp.io/logicalclusters/"
)

// Tree is the tree of workspaces of an installation, through all of its history: what each shard's etcd has had. Make
// it with Grow.
type Tree struct {
	workspaces map[types.UID]*grownWorkspace
	clusters   []*grownCluster
	faults     []string
}

// grownWorkspace is a Workspace, as it was last.
type grownWorkspace struct {
	*tenancyv1alpha1.Workspace
	on    string    // the shard that has it
	ready time.Time // when it was seen to be; zero if it never was
	gone  int64     // at which revision of its shard; 0: it is there
}

// grownCluster is a LogicalCluster, as it was last.
type grownCluster struct {
	*corev1alpha1.LogicalCluster
	on, name string
	gone     int64 // as that of a Workspace
}

func (c *grownCluster) String() string { return fmt.Sprintf("cluster %s on shard %s", c.name, c.on) }

// Grow reads the histories of all shards, by their names, which must begin before the first workspace.
func Grow(shards map[string][]Event) *Tree {
	t := &Tree{workspaces: map[types.UID]*grownWorkspace{}}
	for _, shard := range slices.Sorted(maps.Keys(shards)) {
		now := map[string]*grownCluster{} // by key
		workspaces := map[string]*grownWorkspace{}
		for _, e := range shards[shard] {
			if at := strings.Index(e.Key, workspaceKeys); at >= 0 {
				t.seeWorkspace(shard, e, workspaces)
			} else if at := strings.Index(e.Key, logicalClusterKeys); at >= 0 {
				name, _, _ := strings.Cut(e.Key[at+len(logicalClusterKeys):], "/")
				t.seeCluster(shard, name, e, now)
			}
		}
	}
	return t
}

func (t *Tree) seeWorkspace(shard string, e Event, now map[string]*grownWorkspace) {
	if e.Deleted {
		if ws := now[e.Key]; ws != nil {
			ws.gone = e.Revision
		}
		delete(now, e.Key)
		return
	}
	ws := &tenancyv1alpha1.Workspace{}
	if err := json.Unmarshal(e.Object, ws); err != nil {
		t.fault("%s on shard %s at revision %d is no Workspace: %v", e.Key, shard, e.Revision, err)
		return
	}
	known := t.workspaces[ws.UID]
	if known == nil {
		known = &grownWorkspace{Workspace: ws, on: shard}
		t.workspaces[ws.UID] = known
	}
	if was, is := known.Spec.Cluster, ws.Spec.Cluster; was != "" && was != is {
		t.fault("workspace %s had cluster %s, and has %s at revision %d", e.Key, was, is, e.Revision)
	}
	if known.Workspace, now[e.Key] = ws, known; known.ready.IsZero() && ws.Status.Phase == corev1alpha1.LogicalClusterPhaseReady {
		known.ready = e.At
	}
}

func (t *Tree) seeCluster(shard, name string, e Event, now map[string]*grownCluster) {
	if e.Deleted {
		if c := now[e.Key]; c != nil {
			c.gone = e.Revision
		}
		delete(now, e.Key)
		return
	}
	lc := &corev1alpha1.LogicalCluster{}
	if err := json.Unmarshal(e.Object, lc); err != nil {
		t.fault("%s on shard %s at revision %d is no LogicalCluster: %v", e.Key, shard, e.Revision, err)
		return
	}
	c := now[e.Key]
	if c == nil {
		c = &grownCluster{on: shard, name: name}
		now[e.Key] = c
		t.clusters = append(t.clusters, c)
	}
	c.LogicalCluster = lc
}

func (t *Tree) fault(format string, args ...any) {
	t.faults = append(t.faults, fmt.Sprintf(format, args...))
}

// Faults returns what must never be, at no time: a cluster that was made twice, or for a Workspace that does not name
// it, or deleted without its Workspace; and a Workspace whose cluster has changed.
func (t *Tree) Faults() []string {
	out := slices.Clone(t.faults)
	byName, byOwner := map[string]*grownCluster{}, map[types.UID]*grownCluster{}
	for _, c := range t.clusters {
		if c.Spec.Owner == nil {
			continue
		}
		if first := byName[c.name]; first != nil {
			out = append(out, fmt.Sprintf("%s was made after %s", c, first))
		}
		if first := byOwner[c.Spec.Owner.UID]; first != nil {
			out = append(out, fmt.Sprintf("%s and %s are for the same workspace %s", c, first, c.Spec.Owner.Name))
		}
		byName[c.name], byOwner[c.Spec.Owner.UID] = c, c
		out = append(out, t.faultsOf(c)...)
	}
	return out
}

func (t *Tree) faultsOf(c *grownCluster) (out []string) {
	ws := t.workspaces[c.Spec.Owner.UID]
	if ws == nil {
		return []string{fmt.Sprintf("%s is for a workspace that has never been: %+v", c, c.Spec.Owner)}
	}
	owner, shard := or(c.Labels[clusters.OwnerShardLabel], c.on), or(ws.Labels[clusters.ShardLabel], ws.on)
	if ws.Spec.Cluster != c.name || shard != c.on || owner != ws.on {
		out = append(out, fmt.Sprintf("%s is for workspace %s of shard %s, which names cluster %s on shard %s", c, ws.Name, ws.on, ws.Spec.Cluster, shard))
	}
	if c.DeletionTimestamp != nil && (ws.DeletionTimestamp == nil || c.DeletionTimestamp.Before(ws.DeletionTimestamp)) {
		out = append(out, fmt.Sprintf("%s was deleted, and its workspace %s was not, or later", c, ws.Name))
	}
	together := ws.on == c.on && ws.gone == c.gone // in one transaction
	if c.gone != 0 && c.DeletionTimestamp == nil && !together {
		out = append(out, fmt.Sprintf("%s has gone without being deleted", c))
	}
	if ws.gone != 0 && c.gone == 0 {
		out = append(out, fmt.Sprintf("workspace %s has gone, and left %s", ws.Name, c))
	}
	return out
}

// Unfinished returns what has to go on yet: workspaces that are not Ready, or have no cluster, or are being deleted.
func (t *Tree) Unfinished() (out []string) {
	has := map[types.UID]bool{}
	for _, c := range t.clusters {
		if c.Spec.Owner != nil && c.gone == 0 && c.DeletionTimestamp == nil {
			has[c.Spec.Owner.UID] = true
		}
	}
	for uid, ws := range t.workspaces {
		switch {
		case ws.gone != 0:
		case ws.DeletionTimestamp != nil:
			out = append(out, fmt.Sprintf("workspace %s of shard %s is being deleted", ws.Name, ws.on))
		case ws.Status.Phase != corev1alpha1.LogicalClusterPhaseReady, !has[uid]:
			out = append(out, fmt.Sprintf("workspace %s of shard %s is %q, its cluster %q on %q is there: %t", ws.Name, ws.on, ws.Status.Phase, ws.Spec.Cluster, or(ws.Labels[clusters.ShardLabel], ws.on), has[uid]))
		}
	}
	slices.Sort(out)
	return out
}

// Clusters returns on which shard each living workspace's cluster is, by the cluster's name.
func (t *Tree) Clusters() map[string]string {
	out := map[string]string{}
	for _, c := range t.clusters {
		if c.Spec.Owner != nil && c.gone == 0 {
			out[c.name] = c.on
		}
	}
	return out
}

// Ready returns when each workspace was first seen to be Ready, by the workspace's name.
func (t *Tree) Ready() map[string]time.Time {
	out := map[string]time.Time{}
	for _, ws := range t.workspaces {
		if !ws.ready.IsZero() {
			out[ws.Name] = ws.ready
		}
	}
	return out
}

// Count counts the clusters that were made, and those of them that have gone.
func (t *Tree) Count() (clusters, ends int) {
	for _, c := range t.clusters {
		if c.Spec.Owner != nil {
			clusters++
		}
		if c.gone != 0 {
			ends++
		}
	}
	return clusters, ends
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
