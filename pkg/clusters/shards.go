package clusters

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	conditionsv1alpha1 "github.com/kcp-dev/sdk/apis/third_party/conditions/apis/conditions/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SystemShards is the logical cluster, one in each shard, that has copies of all Shard objects of the installation. The
// shard writes the status of its own one.
const SystemShards logicalcluster.Name = "system:shards"

const (
	// ShardLabel is on a Workspace: the name of the shard that has its logical cluster. It is permanent. Without it
	// the shard of the Workspace itself has the cluster.
	ShardLabel = "regent.dev/shard"
	// OwnerShardLabel is on a LogicalCluster: the name of the shard that has its Workspace. It is permanent.
	// Without it that is the cluster's own shard.
	OwnerShardLabel = "regent.dev/owner-shard"
	// ReplicasAnnotation is on a Shard: the URLs of its replicas, separated by commas. Without it there is one:
	// spec.baseURL.
	ReplicasAnnotation = "regent.dev/replicas"
	// FrontAnnotationPrefix begins annotations of the root shard's Shard: the name of a front follows, and the
	// value is the fingerprint of the authority that signs its certificates.
	FrontAnnotationPrefix = "front.regent.dev/"
	// AuthorityAnnotation is on a Shard: the fingerprint of the authority that signs its certificates.
	AuthorityAnnotation = "regent.dev/authority"
	// PlacementAnnotation is on a Workspace: why its cluster is on that shard.
	PlacementAnnotation = "regent.dev/placement"
	// ReturnAnnotation is on a Workspace whose logical cluster is on another shard than its label says, because
	// that one has lost it: which shard. It goes once the label says so.
	ReturnAnnotation = "regent.dev/returned-to"
	// AdoptAnnotation is on a Workspace that gets a logical cluster that has lost its Workspace, instead of a new
	// one: <shard>/<cluster>. Only administrators set it, when they create the Workspace.
	AdoptAnnotation = "regent.dev/adopt"
	// ComingAnnotation is on the LogicalCluster of a logical cluster that is being taken in with what it had, and
	// is not there yet. Only the shard itself sets it. The value says since when.
	ComingAnnotation = "internal.regent.dev/coming"
	// EpochAnnotation is on the LogicalCluster of a logical cluster that has come to its shard with what it had:
	// see EpochOf. Only the shard itself sets it.
	EpochAnnotation = "internal.regent.dev/epoch"
	// RemovedAnnotation is on a Shard that was removed from the installation. The Shard stays: its name is not used
	// again.
	RemovedAnnotation = "regent.dev/removed"
	// CordonAnnotation is on a Shard that takes no new logical clusters. It is kcp's.
	CordonAnnotation = "experimental.core.kcp.io/unschedulable"
)

// Headers with which a front tells a shard for whom it asks, and a standby its leader. They are Kubernetes' usual ones.
// A shard believes them of fronts, and of its own replicas that pass a step down on.
const (
	RemoteUserHeader  = "X-Remote-User"
	RemoteUIDHeader   = "X-Remote-Uid"
	RemoteGroupHeader = "X-Remote-Group"
	RemoteExtraPrefix = "X-Remote-Extra-"
)

// FrontAgent begins the User-Agent of what fronts ask for themselves. Their version follows.
const FrontAgent = "regent-front/"

// CountedAsHeader is how a front learns for whom the requests with a token count, so that a user with many tokens has
// no more than one with a certificate. A shard answers a request that has this header with the header: the value is
// the name under which its limits count whoever has sent the request, escaped. Nobody learns more by it than their own
// name.
const CountedAsHeader = "Regent-Counted-As"

// What a Shard tells of itself, in status.capacity.
const (
	// CapacityClusters is how many logical clusters the shard can have, UsedClusters how many it has.
	CapacityClusters corev1.ResourceName = "clusters"
	UsedClusters     corev1.ResourceName = "used-clusters"
)

// ConditionOrphaned is true on a LogicalCluster whose Workspace is absent on another shard, though nobody has seen its
// deletion.
const ConditionOrphaned conditionsv1alpha1.ConditionType = "Orphaned"

// DefaultCapacity is how many logical clusters a shard can have unless its replicas are told otherwise: as many as were
// measured.
const DefaultCapacity = 1_000_000

// EpochOf returns, by the metadata of a LogicalCluster, how the versions of the objects of its logical cluster begin
// (see package storage): 0 for one that is where it was made, and a higher number each time that it has come with what
// it had.
func EpochOf(lc metav1.Object) int64 {
	epoch, err := strconv.ParseInt(lc.GetAnnotations()[EpochAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return min(max(epoch, 0), latestEpoch)
}

// epochLength is how long after another one an epoch begins at the least if nobody knows which was the last, and
// epochsBegin when the first one did. latestEpoch is the last of which versions can tell.
const (
	epochLength = 10 * time.Minute
	latestEpoch = 1<<22 - 1
)

var epochsBegin = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// NextEpoch returns an epoch that is later than that of a LogicalCluster, and than those it may have had since: it may
// be one of long ago, from a file.
func NextEpoch(lc metav1.Object, now time.Time) int64 {
	return min(max(EpochOf(lc)+1, int64(now.Sub(epochsBegin)/epochLength)), latestEpoch)
}

// IsComing reports whether a logical cluster is being taken in, and is not there yet: nobody may see what it has.
func IsComing(lc *corev1alpha1.LogicalCluster) bool { return lc.Annotations[ComingAnnotation] != "" }

// IsRemoved reports whether a Shard was removed from the installation.
func IsRemoved(shard *corev1alpha1.Shard) bool { return shard.Annotations[RemovedAnnotation] != "" }

// IsCordoned reports whether a Shard takes no new logical clusters.
func IsCordoned(shard *corev1alpha1.Shard) bool {
	value, ok := shard.Annotations[CordonAnnotation]
	return ok && value != "false"
}

// ReplicasOf returns the URLs of a Shard's replicas, without slashes at their ends.
func ReplicasOf(shard *corev1alpha1.Shard) []string {
	list := shard.Annotations[ReplicasAnnotation]
	if list == "" {
		list = shard.Spec.BaseURL
	}
	var urls []string
	for url := range strings.SplitSeq(list, ",") {
		if url = strings.TrimSuffix(strings.TrimSpace(url), "/"); url != "" && !slices.Contains(urls, url) {
			urls = append(urls, url)
		}
	}
	return urls
}

// ShardOf returns the name of the shard that has the cluster of a Workspace, or that has the Workspace of a
// LogicalCluster, by the given label. own is the name of the object's own shard.
func ShardOf(obj metav1.Object, label, own string) string {
	if name := obj.GetLabels()[label]; name != "" {
		return name
	}
	return own
}

// HomeOf returns the shard that has a Workspace's logical cluster. It is empty until one is assigned. own is the shard
// of the Workspace itself.
func HomeOf(w *tenancyv1alpha1.Workspace, own string) string {
	if w.Spec.Cluster == "" {
		return ""
	}
	return ShardOf(w, ShardLabel, own)
}

// IsUnreachable reports whether a Workspace's phase is only what its shard has said last, because that does not answer.
// answers is nil if there is no other shard than own.
//
// status.phase stays as it is meanwhile, as that of a Pod whose node is silent does in Kubernetes: it is a fact of the
// past, by which programs decide. A shard that is down for a minute must not cost a write for each of its thousands of
// workspaces, and another one when it is back. What people read is made anew for each answer, so it says what is so
// now. Scheduling and Deleting are what the Workspace's own shard knows, and their conditions say what they wait for.
func IsUnreachable(w *tenancyv1alpha1.Workspace, own string, answers func(shard string) bool) bool {
	switch w.Status.Phase {
	case "", corev1alpha1.LogicalClusterPhaseScheduling, corev1alpha1.LogicalClusterPhaseDeleting:
		return false
	}
	home := HomeOf(w, own)
	return home != "" && answers != nil && !answers(home)
}

// Indexes of LogicalClusters that other shards have assigned to this one. The others are in neither: they need no
// memory for it.
const (
	// ByOwnerShard has them by the shard of their Workspace.
	ByOwnerShard = "owner-shard"
	// ByPath has them by their path.
	ByPath = "path"
)

// AssignedIndexers are the indexers of ByOwnerShard and ByPath.
func AssignedIndexers() map[string]func(*corev1alpha1.LogicalCluster) []string {
	assigned := func(lc *corev1alpha1.LogicalCluster, value string) []string {
		if lc.Labels[OwnerShardLabel] == "" || value == "" {
			return nil
		}
		return []string{value}
	}
	return map[string]func(*corev1alpha1.LogicalCluster) []string{
		ByOwnerShard: func(lc *corev1alpha1.LogicalCluster) []string { return assigned(lc, lc.Labels[OwnerShardLabel]) },
		ByPath: func(lc *corev1alpha1.LogicalCluster) []string {
			return assigned(lc, lc.Annotations[core.LogicalClusterPathAnnotationKey])
		},
	}
}
