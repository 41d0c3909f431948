package namespace

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/controllers/content"
)

var (
	deletedAt = metav1.Unix(1000, 0)
	now       = time.Unix(2000, 0)
)

func inDeletion() *corev1.Namespace {
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "7", DeletionTimestamp: &deletedAt},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes, "a/b"}},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating},
	}
}

func TestOnlyNamespacesInDeletionAreEmptied(t *testing.T) {
	living := inDeletion()
	living.DeletionTimestamp = nil
	finished := content.Finalized(inDeletion())
	for name, tc := range map[string]struct {
		namespace *corev1.Namespace
		want      bool
	}{"living": {living, false}, "in deletion": {inDeletion(), true}, "finalized": {finished, false}} {
		if got := terminating(tc.namespace); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	if d := cmp.Diff([]corev1.FinalizerName{"a/b"}, finished.Spec.Finalizers); d != "" {
		t.Errorf("finalizers of others were touched:\n%s", d)
	}
	if finished.ResourceVersion != "7" {
		t.Error("the write does not carry the resourceVersion it was decided on")
	}
}

func TestConditionsSayWhatADeletionWaitsFor(t *testing.T) {
	type condition struct {
		Status  corev1.ConditionStatus
		Reason  string
		Message string
	}
	for name, tc := range map[string]struct {
		remaining content.Remaining
		failure   error
		want      map[corev1.NamespaceConditionType]condition
	}{
		"finalizers": {
			content.Remaining{Objects: map[string]int{"configmaps": 2}, Finalizers: map[string]int{"a/b": 1}}, nil,
			map[corev1.NamespaceConditionType]condition{
				"NamespaceDeletionContentFailure": {"False", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"},
				"NamespaceContentRemaining":       {"True", "SomeResourcesRemain", "Some resources are remaining: configmaps has 2 resource instances"},
				"NamespaceFinalizersRemaining":    {"True", "SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: a/b in 1 resource instances"},
			},
		},
		"failure": {
			content.Remaining{}, errors.New("no store"),
			map[corev1.NamespaceConditionType]condition{
				"NamespaceDeletionContentFailure": {"True", "ContentDeletionFailed", "Failed to delete all resource types: no store"},
				"NamespaceContentRemaining":       {"False", "ContentRemoved", "All content successfully removed"},
				"NamespaceFinalizersRemaining":    {"False", "ContentHasNoFinalizers", "All content-preserving finalizers finished"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			out := reported(inDeletion(), tc.remaining, tc.failure, now)
			got := map[corev1.NamespaceConditionType]condition{}
			for _, c := range out.Status.Conditions {
				if _, ok := tc.want[c.Type]; ok {
					got[c.Type] = condition{c.Status, c.Reason, c.Message}
				}
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Error(d)
			}
			if reported(out, tc.remaining, tc.failure, now.Add(time.Hour)) != nil {
				t.Error("the same is told again")
			}
		})
	}
}

func TestATransitionTimeChangesWithTheStatusOnly(t *testing.T) {
	first := reported(inDeletion(), content.Remaining{Objects: map[string]int{"secrets": 2}}, nil, now)
	second := reported(first, content.Remaining{Objects: map[string]int{"secrets": 1}}, nil, now.Add(time.Hour))
	if second == nil {
		t.Fatal("progress is not told")
	}
	for _, c := range second.Status.Conditions {
		if !c.LastTransitionTime.Time.Equal(now) {
			t.Errorf("%s: transition at %s, want %s", c.Type, c.LastTransitionTime, now)
		}
	}
}
