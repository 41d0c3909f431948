package namespace

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/controllers/content"
)

// terminating reports whether a namespace waits for its content to be deleted.
func terminating(namespace *corev1.Namespace) bool {
	return namespace.DeletionTimestamp != nil && slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes)
}

// reported returns the namespace with the conditions that say what its deletion waits for, in upstream's words. It
// returns nil if the namespace has them already. failure is the error of the last deletion.
func reported(namespace *corev1.Namespace, remaining content.Remaining, failure error, now time.Time) *corev1.Namespace {
	out := namespace.DeepCopy()
	out.Status.Phase = corev1.NamespaceTerminating
	changed := namespace.Status.Phase != out.Status.Phase
	for _, c := range conditions(remaining, failure) {
		changed = set(out, c, now) || changed
	}
	if !changed {
		return nil
	}
	return out
}

func conditions(remaining content.Remaining, failure error) []corev1.NamespaceCondition {
	discovered := corev1.NamespaceCondition{
		Type: corev1.NamespaceDeletionDiscoveryFailure, Status: corev1.ConditionFalse,
		Reason: "ResourcesDiscovered", Message: "All resources successfully discovered",
	}
	parsed := corev1.NamespaceCondition{
		Type: corev1.NamespaceDeletionGVParsingFailure, Status: corev1.ConditionFalse,
		Reason: "ParsedGroupVersions", Message: "All legacy kube types successfully parsed",
	}
	deleted := corev1.NamespaceCondition{
		Type: corev1.NamespaceDeletionContentFailure, Status: corev1.ConditionFalse,
		Reason: "ContentDeleted", Message: "All content successfully deleted, may be waiting on finalization",
	}
	if failure != nil {
		deleted.Status, deleted.Reason = corev1.ConditionTrue, "ContentDeletionFailed"
		deleted.Message = "Failed to delete all resource types: " + failure.Error()
	}
	left := corev1.NamespaceCondition{
		Type: corev1.NamespaceContentRemaining, Status: corev1.ConditionFalse,
		Reason: "ContentRemoved", Message: "All content successfully removed",
	}
	if len(remaining.Objects) > 0 {
		left.Status, left.Reason = corev1.ConditionTrue, "SomeResourcesRemain"
		left.Message = "Some resources are remaining: " + remaining.DescribeObjects()
	}
	held := corev1.NamespaceCondition{
		Type: corev1.NamespaceFinalizersRemaining, Status: corev1.ConditionFalse,
		Reason: "ContentHasNoFinalizers", Message: "All content-preserving finalizers finished",
	}
	if len(remaining.Finalizers) > 0 {
		held.Status, held.Reason = corev1.ConditionTrue, "SomeFinalizersRemain"
		held.Message = "Some content in the namespace has finalizers remaining: " + remaining.DescribeFinalizers()
	}
	return []corev1.NamespaceCondition{discovered, parsed, deleted, left, held}
}

// set sets the condition of c's type and reports whether that changed anything.
func set(namespace *corev1.Namespace, c corev1.NamespaceCondition, now time.Time) bool {
	c.LastTransitionTime = metav1.NewTime(now)
	i := slices.IndexFunc(namespace.Status.Conditions, func(o corev1.NamespaceCondition) bool { return o.Type == c.Type })
	if i < 0 {
		namespace.Status.Conditions = append(namespace.Status.Conditions, c)
		return true
	}
	old := namespace.Status.Conditions[i]
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	namespace.Status.Conditions[i] = c
	return old.Status != c.Status || old.Reason != c.Reason || old.Message != c.Message
}
