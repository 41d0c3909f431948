package clusters

import corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"

// The finalizers of the shard's own controllers. Only they remove them.
const (
	// WorkspaceFinalizer keeps a Workspace until its logical cluster has gone.
	WorkspaceFinalizer = corev1alpha1.LogicalClusterFinalizerName
	// ContentFinalizer keeps a LogicalCluster until the content of its cluster has gone.
	ContentFinalizer = "regent.dev/content"
)
