package bundle

import "strings"

// FreezePath is the URL path, in a logical cluster, at which its shard freezes it, and writes its objects as they are.
// POST freezes it, and answers with a Frozen. PUT with ?freeze=<Frozen.Freeze> and lines of Objects writes each Object
// and deletes what is Deleted, in no order, and renews the freeze, also without a line. DELETE with the same ends it.
const FreezePath = "/bundle/freeze"

// MaxWrite is how many bytes the lines of one PUT may have.
const MaxWrite = 8 << 20

// Frozen is what a shard says of a freeze.
type Frozen struct {
	// Freeze names it.
	Freeze string `json:"freeze"`
	// Revision is that of the shard's etcd at which it began, and nobody else writes from then on; in the answer to
	// DELETE, the last at which it held.
	Revision int64 `json:"revision"`
	// Seconds are how long it lasts if it is not renewed.
	Seconds int `json:"seconds"`
}

// LeftAlone says why an object is never written as it is, and ends the sentence "they stay as they are:"; empty: it may
// be.
func LeftAlone(key string) string {
	switch {
	case strings.HasPrefix(key, "core.kcp.io/logicalclusters/"):
		return "the logical cluster itself is of its workspace"
	case strings.HasPrefix(key, "tenancy.kcp.io/workspaces/"):
		return "what is in them is not in this workspace: restore each by itself, or import a bundle of one that is gone"
	case strings.HasPrefix(key, "coordination.k8s.io/"):
		return "they say who leads now, and no term comes back"
	case strings.HasPrefix(key, "core/events/"):
		return "they tell what has happened"
	}
	return ""
}
