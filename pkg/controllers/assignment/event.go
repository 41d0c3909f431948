package assignment

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
)

// reasonOrphaned is the reason of the Event about a logical cluster that has lost its Workspace.
const reasonOrphaned = "Orphaned"

// orphanedEvent returns the Event about a cluster that was just marked. It is for system:admin of the cluster's shard,
// where operators look: the cluster itself is its users'.
func orphanedEvent(lc *corev1alpha1.LogicalCluster, a assigned, replica string) *corev1.Event {
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: a.cluster.String() + ".orphaned." + lc.ResourceVersion},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: corev1alpha1.SchemeGroupVersion.String(), Kind: "LogicalCluster", Name: lc.Name, UID: lc.UID,
		},
		Type: corev1.EventTypeWarning, Reason: reasonOrphaned,
		Message: fmt.Sprintf("logical cluster %s has lost its Workspace %s of shard %s, and stays: adopt or delete it with regent shard orphans", a.cluster, a.workspace, a.shard),
		Source:  corev1.EventSource{Component: "regent", Host: replica}, ReportingController: "regent", ReportingInstance: replica,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
}
