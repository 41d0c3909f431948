package bundle

import "encoding/json"

// ComingPath is the URL path, in the logical cluster that is to have a Workspace, at which its shard takes in the
// Workspace's logical cluster as it was, with uids. POST with a Coming begins, and answers with a Frozen: the logical
// cluster is frozen, and nobody sees it. PUT with ?cluster=<its name>&freeze=<Frozen.Freeze> and lines of Objects
// writes each, in no order, and renews the freeze, also without a line. POST with ?freeze= and the same Coming makes it
// one that is there, with its Workspace, in one transaction. DELETE with ?cluster= and ?freeze= removes it; so does the
// shard if the freeze ends.
const ComingPath = "/bundle/coming"

// Paths are all paths of this package: what is read and written there are objects.
var Paths = []string{Path, FreezePath, ComingPath, LeavingPath, ArrivingPath}

// Coming is what a logical cluster is taken in by, as bundles have it.
type Coming struct {
	// LogicalCluster is the one of its own bundle, and names the Workspace as its owner.
	LogicalCluster json.RawMessage `json:"logicalCluster"`
	// Workspace is the one of the bundle around it. Empty: one is made that has its name and uid.
	Workspace json.RawMessage `json:"workspace,omitempty"`
}

// The keys of a logical cluster's own object, and the begin of those of Workspaces and of APIBindings.
const (
	LogicalClusterKey = "core.kcp.io/logicalclusters/cluster"
	WorkspaceKeys     = "tenancy.kcp.io/workspaces/"
	BindingKeys       = "apis.kcp.io/apibindings/"
)
