package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/regent-project/regent/pkg/clusters"
)

// QuotaLimits are how much a logical cluster may store. Workspaces are those in it, and not in clusters below. 0: no
// limit.
type QuotaLimits struct{ Objects, Bytes, Workspaces int64 }

// Quota refuses writes with which a logical cluster would store more than it may: creations, and updates that make an
// object larger. What makes room is never refused: deletions, and updates that leave an object as large as it is. Nor
// is a write of this process's own users, or of the LogicalCluster itself, which carries the limits.
//
// It judges by what the replica has seen stored. So writes that are under way at the same time pass together, on all
// replicas.
type Quota struct {
	// Default applies to clusters whose LogicalCluster says nothing else. It does not apply to system clusters and
	// permanent ones, which are the operators'.
	Default QuotaLimits
	// Exempt are the names of users whose writes are not judged.
	Exempt []string
	// Room returns how many bytes all clusters together may store, or 0 if that is not known. A cluster to which no
	// limit of bytes applies, by Default or by what its LogicalCluster says, may store twice as many as there are
	// left, so that no cluster takes all: one alone gets two thirds of the room. Each may store a little, whatever
	// others have. Nil: no limit.
	Room func() int64
	// Stored returns how much a cluster stores, or all together with clusters.Wildcard.
	Stored func(logicalcluster.Name) (objects, bytes int64)
	// Workspaces returns how many Workspaces a cluster stores.
	Workspaces func(logicalcluster.Name) int64
	// LogicalCluster returns the LogicalCluster of a cluster from memory, if there is one.
	LogicalCluster func(logicalcluster.Name) (*corev1alpha1.LogicalCluster, bool)
}

// Handles implements admission.Interface.
func (q *Quota) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}

// Validate implements admission.ValidationInterface.
func (q *Quota) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	cluster, ok := clusters.From(ctx)
	if !ok || clusters.IsSystem(cluster) || a.GetResource().GroupResource() == corev1alpha1.Resource("logicalclusters") {
		return nil
	}
	if who := a.GetUserInfo(); who != nil && slices.Contains(q.Exempt, who.GetName()) {
		return nil
	}
	limits, unsaid := q.limits(cluster)
	var room int64
	if unsaid && q.Room != nil {
		room = q.Room()
	}
	if limits == (QuotaLimits{}) && room == 0 {
		return nil
	}
	objects, bytes := q.Stored(cluster)
	var left int64
	if room > 0 {
		_, all := q.Stored(clusters.Wildcard)
		left = max(0, room-all)
		limits.Bytes = max(ofWhatIsLeft*left, room/little)
	}
	if created(a) && limits.Objects > 0 && objects >= limits.Objects {
		quotaRefused.WithLabelValues(limitObjects).Inc()
		return refusal(a, fmt.Errorf("logical cluster %q stores %d objects, and may store %d", cluster, objects, limits.Objects))
	}
	if isWorkspace := a.GetResource().GroupResource() == tenancyv1alpha1.Resource("workspaces"); isWorkspace && created(a) && limits.Workspaces > 0 {
		if has := q.Workspaces(cluster); has >= limits.Workspaces {
			quotaRefused.WithLabelValues(limitWorkspaces).Inc()
			return refusal(a, fmt.Errorf("logical cluster %q has %d workspaces, and may have %d", cluster, has, limits.Workspaces))
		}
	}
	if limits.Bytes == 0 || bytes+largest <= limits.Bytes {
		return nil // whatever it is: it need not be measured
	}
	if grows := growth(a); grows > 0 && bytes+grows > limits.Bytes {
		quotaRefused.WithLabelValues(limitBytes).Inc()
		if room > 0 {
			return refusal(a, fmt.Errorf("logical cluster %q stores %d bytes, this write would add %d, and etcd has room for %d more of all logical clusters together", cluster, bytes, grows, left))
		}
		return refusal(a, fmt.Errorf("logical cluster %q stores %d bytes, this write would add %d, and it may store %d", cluster, bytes, grows, limits.Bytes))
	}
	return nil
}

// ofWhatIsLeft is how much a cluster may store, compared with what is left for all, and little is which part of the
// room each may store, whatever others have.
const ofWhatIsLeft, little = 2, 1024

// largest is more than an object can have: upstream reads 3 MiB of a request's body at the most, and an apply can add
// to what is there, up to what etcd takes.
const largest = 8 << 20

func refusal(a admission.Attributes, err error) error {
	return admission.NewForbidden(a, fmt.Errorf("quota exceeded: %w: delete what is not needed, or ask an administrator of the shard for more (annotations %s of LogicalCluster %q)",
		err, strings.Join(clusters.QuotaAnnotations, ", "), corev1alpha1.LogicalClusterName))
}

// limits returns what applies to a cluster. unsaid: nobody has said how many bytes.
func (q *Quota) limits(cluster logicalcluster.Name) (limits QuotaLimits, unsaid bool) {
	limits = q.Default
	if clusters.IsPermanent(cluster) {
		limits = QuotaLimits{}
	}
	unsaid = limits.Bytes == 0 && !clusters.IsPermanent(cluster)
	lc, ok := q.LogicalCluster(cluster)
	if !ok {
		return limits, unsaid
	}
	// in the order of the annotations
	for n, limit := range []*int64{&limits.Objects, &limits.Bytes, &limits.Workspaces} {
		key := clusters.QuotaAnnotations[n]
		if value, said := lc.Annotations[key]; said {
			if n, err := clusters.ParseQuota(value); err == nil { // a write with another value is refused
				*limit = n
				unsaid = unsaid && limit != &limits.Bytes
			}
		}
	}
	return limits, unsaid
}

func created(a admission.Attributes) bool {
	return a.GetOperation() == admission.Create && a.GetSubresource() == ""
}

// growth returns how many more bytes are stored after the write.
func growth(a admission.Attributes) int64 {
	if a.GetOperation() == admission.Create && !created(a) {
		return 0 // such as a request for a token: nothing is stored
	}
	grows := sizeOf(a.GetObject())
	if a.GetOperation() == admission.Update {
		grows -= sizeOf(a.GetOldObject())
	}
	return grows
}

// sizeOf returns how many bytes an object has when it is stored, give or take a few: in protobuf if its type has that,
// else in JSON.
func sizeOf(obj runtime.Object) int64 {
	if obj == nil {
		return 0
	}
	if of, ok := obj.(interface{ Size() int }); ok {
		return int64(of.Size())
	}
	data, err := json.Marshal(obj)
	if err != nil {
		return 0 // storage will tell
	}
	return int64(len(data))
}

var _ admission.ValidationInterface = (*Quota)(nil)

// The limits that a write can reach.
const (
	limitObjects    = "objects"
	limitBytes      = "bytes"
	limitWorkspaces = "workspaces"
	limitDepth      = "depth"
)

// The cluster is no label: there may be 100,000.
var quotaRefused = metrics.NewCounterVec(&metrics.CounterOpts{
	Name: "regent_quota_refused_total", StabilityLevel: metrics.ALPHA,
	Help: "Writes that were refused because their logical cluster would have stored more than it may, by the limit: objects, bytes, workspaces or depth.",
}, []string{"limit"})

func init() {
	legacyregistry.MustRegister(quotaRefused)
	for _, limit := range []string{limitObjects, limitBytes, limitWorkspaces, limitDepth} {
		quotaRefused.WithLabelValues(limit).Add(0)
	}
}
