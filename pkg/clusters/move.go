package clusters

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A logical cluster moves to another shard in these steps. Its LogicalCluster says in which it is, on either shard, and
// only the shard itself writes that:
//
//	destination             origin                  who has it
//	coming                                          the origin
//	coming                  leaving (frozen)        the origin
//	coming, complete        leaving (frozen)        the origin
//	coming, complete        moved                   the destination: nothing is served yet
//	(there)                 moved                   the destination
//	(there)                                         the destination
//
// An administrator may say what becomes of one when an etcd was restored from a backup of before: a moved one is there
// again, whose destination has nothing any more, and one that is there has moved, whose destination has had it since.
//
// One write of the origin's etcd decides: leaving becomes moved. Before it the destination discards what has come if
// the origin is not leaving, and after it the destination has the cluster, whatever becomes of who has begun the move.
const (
	// LeavingAnnotation is on a LogicalCluster that may become a moved one: the Move. It may as long as it says so.
	LeavingAnnotation = "internal.regent.dev/leaving"
	// LeftAnnotation is on a LogicalCluster that may leave, or has moved: when its writes began to wait.
	LeftAnnotation = "internal.regent.dev/left"
	// MovedAnnotation is on a LogicalCluster that has moved to another shard, and is not removed here yet: the
	// Move.
	MovedAnnotation = "internal.regent.dev/moved"
	// VacatedAnnotation is on a LogicalCluster that has moved, and of which objects may have been removed here.
	VacatedAnnotation = "internal.regent.dev/vacated"
	// ComingFromAnnotation is on a LogicalCluster that comes from another shard: the Move.
	ComingFromAnnotation = "internal.regent.dev/coming-from"
	// HiddenPathAnnotation is on a LogicalCluster that comes from another shard: its path. Nobody finds it by that.
	HiddenPathAnnotation = "internal.regent.dev/path"
	// CompleteAnnotation is on a LogicalCluster that comes from another shard, once all is there that it had.
	CompleteAnnotation = "internal.regent.dev/complete"
	// ResumeAnnotation is on a LogicalCluster that has come from another shard: how watches go on that began there.
	// It is of package storage.
	ResumeAnnotation = "internal.regent.dev/resume"
	// OriginsAnnotation is on a LogicalCluster that has come from other shards: their names, separated by commas.
	OriginsAnnotation = "internal.regent.dev/origins"
)

// EventTTL is how long Events are kept after their last change, or their last move.
const EventTTL = time.Hour

// InternalPrefix begins annotations that only the shard itself writes.
const InternalPrefix = "internal.regent.dev/"

// Move is one move of a logical cluster, as the LogicalCluster on a shard names it.
type Move struct {
	// Shard is the shard at the other end.
	Shard string
	// ID is the same on both shards, and of no other move.
	ID string
}

// String is what the annotations have.
func (m Move) String() string { return m.Shard + "/" + m.ID }

// moveOf returns the Move that an annotation has. It is zero if there is none.
func moveOf(obj metav1.Object, annotation string) Move {
	shard, id, ok := strings.Cut(obj.GetAnnotations()[annotation], "/")
	if !ok || shard == "" || id == "" {
		return Move{}
	}
	return Move{shard, id}
}

// Leaving returns the Move that a LogicalCluster may make, if it is frozen. It is zero if it may make none.
func Leaving(lc metav1.Object) Move { return moveOf(lc, LeavingAnnotation) }

// MovedTo returns the Move that a LogicalCluster has made away from its shard. It is zero if it is there.
func MovedTo(lc metav1.Object) Move { return moveOf(lc, MovedAnnotation) }

// HasMoved reports whether a logical cluster is on another shard by now.
func HasMoved(lc metav1.Object) bool { return MovedTo(lc) != Move{} }

// IsMoving reports whether a logical cluster comes, may leave, or has moved.
func IsMoving(lc *corev1alpha1.LogicalCluster) bool {
	return IsComing(lc) || HasMoved(lc) || Leaving(lc) != Move{}
}

// ComingFrom returns the Move by which a LogicalCluster comes. It is zero for one that comes out of a file.
func ComingFrom(lc metav1.Object) Move { return moveOf(lc, ComingFromAnnotation) }

// OriginsOf returns the shards that have had a logical cluster before.
func OriginsOf(lc metav1.Object) []string {
	return strings.FieldsFunc(lc.GetAnnotations()[OriginsAnnotation], func(r rune) bool { return r == ',' })
}

// AddOrigin records that a logical cluster has been on a shard.
func AddOrigin(lc metav1.Object, shard string) {
	all := OriginsOf(lc)
	if slices.Contains(all, shard) {
		return
	}
	annotations := lc.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[OriginsAnnotation] = strings.Join(append(all, shard), ",")
	lc.SetAnnotations(annotations)
}

// MovedError is of a logical cluster that has moved to another shard, and is an answer to requests.
type MovedError struct {
	Cluster logicalcluster.Name
	To      Move
}

// Error implements error.
func (e *MovedError) Error() string { return e.Status().Message }

// movedCause and moveCause are the types of the causes in the details of the answer.
const movedCause, moveCause metav1.CauseType = "MovedToShard", "Move"

// Status implements apierrors.APIStatus.
func (e *MovedError) Status() metav1.Status {
	return metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusMisdirectedRequest, Reason: "MisdirectedRequest",
		Message: fmt.Sprintf("logical cluster %q has moved to shard %s: ask a front, or that shard", e.Cluster, e.To.Shard),
		Details: &metav1.StatusDetails{Name: e.Cluster.String(), Kind: "logicalclusters", Causes: []metav1.StatusCause{
			{Type: movedCause, Message: e.To.Shard}, {Type: moveCause, Message: e.To.ID},
		}},
	}
}

// MoveIn returns the Move that a shard's answer tells of, which is that of a MovedError. It is zero for other answers.
func MoveIn(answer metav1.Status) (to Move) {
	if answer.Code != http.StatusMisdirectedRequest || answer.Details == nil {
		return Move{}
	}
	for _, cause := range answer.Details.Causes {
		switch cause.Type {
		case movedCause:
			to.Shard = cause.Message
		case moveCause:
			to.ID = cause.Message
		}
	}
	if to.Shard == "" || to.ID == "" {
		return Move{}
	}
	return to
}
