package workspace

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// candidate is a shard that may get the logical cluster of a Workspace.
type candidate struct {
	name   string
	labels labels.Set
	// own says that it is the Workspace's shard. cordoned and removed ones take no new clusters, and who is not
	// heard would not take it soon.
	own, cordoned, heard bool
	clusters, capacity   int64
}

// placement is where a new logical cluster goes.
type placement struct {
	// shard is empty if no shard fits.
	shard string
	// why says what spoke for the shard, and what against the others. It is empty in a shard that is alone. Tenants
	// read it, so it has numbers, and no names and loads of shards that are not theirs.
	why string
	// details are the same for the operator, with each shard by its name.
	details string
	// adopted is the cluster that the Workspace adopts. Empty: it gets a new one.
	adopted logicalcluster.Name
}

// adoption returns the placement of a Workspace that adopts a cluster. heard says whether the cluster's shard is heard.
// lc is the cluster's LogicalCluster, nil if that shard shows none. path is the path that a cluster of the Workspace
// has.
func adoption(ws *tenancyv1alpha1.Workspace, own, path string, heard bool, lc *corev1alpha1.LogicalCluster) placement {
	shard, cluster := controllers.Adoption(ws)
	var against string
	switch {
	case !heard:
		against = "that shard is not heard"
	case lc == nil:
		against = "that shard has no such cluster of this one's workspaces"
	case lc.Annotations[core.LogicalClusterPathAnnotationKey] != path:
		against = fmt.Sprintf("its path is %s, for ever, and not %s", lc.Annotations[core.LogicalClusterPathAnnotationKey], path)
	default:
		against = controllers.AgainstAdoption(ws, own, lc)
	}
	if against != "" {
		return placement{why: fmt.Sprintf("it cannot adopt logical cluster %s of shard %s: %s", cluster, shard, against)}
	}
	return placement{shard: shard, why: fmt.Sprintf("it adopts logical cluster %s, which %s has", cluster, shard), adopted: cluster}
}

// place returns the shard for a Workspace: of those that fit the one with the fewest clusters for its capacity.
func place(ws *tenancyv1alpha1.Workspace, candidates []candidate) placement {
	selector := labels.Everything()
	if l := ws.Spec.Location; l != nil && l.Selector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(l.Selector); err != nil {
			return placement{why: fmt.Sprintf("spec.location.selector cannot be used: %v", err)}
		}
	}
	candidates = slices.SortedFunc(slices.Values(candidates), func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.load(), b.load()), cmp.Compare(a.clusters, b.clusters), cmp.Compare(a.name, b.name))
	})
	var out placement
	var details []string
	speak := map[string]int{}
	for _, c := range candidates {
		against := c.against(selector)
		if against == "" && out.shard == "" {
			out.shard, against = c.name, "chosen"
		} else {
			against = cmp.Or(against, "with less room")
			speak[against]++
		}
		details = append(details, fmt.Sprintf("%s: %s, %d clusters of %d", c.name, against, c.clusters, c.capacity))
	}
	if alone := len(candidates) == 1 && candidates[0].own; alone && out.shard != "" {
		return out
	}
	out.why, out.details = "no shard fits: "+numbers(speak), strings.Join(details, "; ")
	if out.shard != "" {
		out.why = strings.TrimSuffix("it has the most room; others: "+numbers(speak), "; others: ")
	}
	return out
}

// numbers says how often there is what.
func numbers(of map[string]int) string {
	var out []string
	for _, what := range slices.Sorted(maps.Keys(of)) {
		out = append(out, fmt.Sprintf("%d %s", of[what], what))
	}
	return strings.Join(out, ", ")
}

func (c candidate) load() float64 { return float64(c.clusters) / float64(max(c.capacity, 1)) }

// against returns what speaks against a shard, and nothing if it fits.
func (c candidate) against(selector labels.Selector) string {
	switch {
	case c.cordoned:
		return "cordoned"
	case !selector.Matches(c.labels):
		return fmt.Sprintf("not matching the selector %s", selector)
	case !c.heard:
		return "not heard"
	case c.clusters >= c.capacity:
		return "full"
	}
	return ""
}

// shards knows the candidates.
type shards struct {
	own      string
	members  *clusters.Informer[*corev1alpha1.Shard]
	others   *controllers.Shards
	countOwn func() int
	mu       sync.Mutex
	// how many clusters this leader has assigned to a shard since that has last told how many it has
	assigned map[string]int64
	toldAt   map[string]string // the resource version of what it has told
}

func newShards(own string, informers controllers.Informers, others *controllers.Shards) *shards {
	return &shards{
		own: own, members: informers.Shards, others: others, countOwn: informers.LogicalClusters.Len,
		assigned: map[string]int64{}, toldAt: map[string]string{},
	}
}

// candidates returns all shards of the installation.
func (s *shards) candidates() []candidate {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []candidate{}
	for _, member := range s.members.List(clusters.SystemShards) {
		if !clusters.IsRemoved(member) && member.Name != s.own {
			out = append(out, s.other(member))
		}
	}
	own := candidate{name: s.own, own: true, heard: true, clusters: int64(s.countOwn()), capacity: clusters.DefaultCapacity}
	if member, ok := s.members.Get(clusters.Key{Cluster: clusters.SystemShards, Name: s.own}); ok {
		own.labels, own.cordoned = member.Labels, clusters.IsCordoned(member) || clusters.IsRemoved(member)
		own.capacity, _ = figures(member)
	}
	return append(out, own)
}

// other returns a shard by what it says of itself in its own copy.
func (s *shards) other(member *corev1alpha1.Shard) candidate {
	c := candidate{name: member.Name, labels: member.Labels, cordoned: clusters.IsCordoned(member), heard: s.others.Contact.Steady(member.Name)}
	home, ok := s.others.Members.Get(member.Name, clusters.Key{Cluster: clusters.SystemShards, Name: member.Name})
	if !ok {
		c.heard = false
		return c
	}
	c.capacity, c.clusters = figures(home)
	if s.toldAt[member.Name] != home.ResourceVersion {
		s.toldAt[member.Name], s.assigned[member.Name] = home.ResourceVersion, 0
	}
	c.clusters += s.assigned[member.Name]
	return c
}

// assign records that a shard has got one more cluster.
func (s *shards) assign(shard string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.assigned[shard]++
}

// figures returns what a shard tells of itself.
func figures(home *corev1alpha1.Shard) (capacity, used int64) {
	quantity := func(name corev1.ResourceName) int64 {
		q := home.Status.Capacity[name]
		return q.Value()
	}
	return quantity(clusters.CapacityClusters), quantity(clusters.UsedClusters)
}
