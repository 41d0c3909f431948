package bundle

import (
	"encoding/json"
	"strings"
)

// LeavingPath is the URL path, in a logical cluster, at which its shard gives it away to another shard. GET with
// ?revision= and ?after= is a page of it, as at Path, with nothing left out and nothing sealed; GET with ?recent= is a
// Recent; GET with ?since=<a revision> is what has changed since then, also deletions, up to the revision of the
// Header; with &until=<an id of a move> too, the answer waits for that move, and has all up to the freeze; GET with
// ?schemas= is a SchemaNames, and GET with ?schema=<a name in it> is that APIResourceSchema. POST with
// ?to=<shard> and ?move=<an id of the caller's own> freezes it, and answers with a Departure. With
// ?freeze=<Departure.Freeze>, PUT renews the freeze, DELETE ends it, and POST with the same ?to= and ?move= makes the
// logical cluster one of the other shard, which must have all of it by then: nothing undoes that.
//
// In system:admin an administrator says what has become of one, with ?cluster=<its name>, after the etcd of a shard was
// restored from a backup of before its move: POST with &to=<shard> that it is on that shard, which must say so, too,
// and DELETE that it is here again, because the shard to which it had moved has lost it, which must say so, too.
const LeavingPath = "/bundle/leaving"

// ArrivingPath is the URL path, in system:admin, at which a shard takes a logical cluster over from another one. POST
// with an Arriving begins, and answers with a Frozen: the logical cluster is frozen, and nobody sees it. PUT with
// ?cluster=<its name>&freeze=<Frozen.Freeze> and lines of Objects writes each, and deletes what is Deleted, in no
// order, and renews the freeze; PUT with &schema=<a name in SchemaNames> and that APIResourceSchema keeps it. PATCH
// with these and an Arriving says that all is there, also the schemas. POST with these and ?move= makes it one that is
// there, once the other shard says that it has left. DELETE with these removes what has come; with ?cluster= only it
// has whoever has begun go on no more, and the shard ends what is there. GET with ?cluster= says whether it comes: 404
// if not.
const ArrivingPath = "/bundle/arriving"

// Arriving is a logical cluster that comes from another shard.
type Arriving struct {
	// LogicalCluster is as the other shard has it, and for PATCH as it was when it left.
	LogicalCluster json.RawMessage `json:"logicalCluster"`
	// Shard is the one that it comes from, and Move the id of the move.
	Shard string `json:"shard,omitempty"`
	Move  string `json:"move,omitempty"`
	// OwnerShard is the one that has its Workspace.
	OwnerShard string `json:"ownerShard,omitempty"`
	// Objects is how many objects it had when it left, without Events.
	Objects int64 `json:"objects,omitempty"`
	// Since and Last are those of Recent, with what has changed up to the freeze.
	Since int64            `json:"since,omitempty"`
	Last  map[string]int64 `json:"last,omitempty"`
	// Until is the revision at which it left, that of the Departure.
	Until int64 `json:"until,omitempty"`
}

// Recent is what has changed in a logical cluster of late.
type Recent struct {
	// Revision is that of etcd up to which Last goes, and Since the one behind which it begins.
	Revision int64 `json:"revision"`
	Since    int64 `json:"since"`
	// Last are the revisions of the last change of each resource, as the keys of Objects begin.
	Last map[string]int64 `json:"last"`
	// Objects is how many objects there are, without Events. 0: it is not known.
	Objects int64 `json:"objects,omitempty"`
}

// SchemaNames are the schemas of other logical clusters that one has bound, by the names of the copies that its shard
// has.
type SchemaNames struct {
	Schemas []string `json:"schemas"`
}

// Departure is what a shard says of a logical cluster that may leave.
type Departure struct {
	Frozen
	LogicalCluster json.RawMessage `json:"logicalCluster"`
	Objects        int64           `json:"objects"`
}

// ResourceOf returns how the keys of the objects begin that are watched together with that of a key.
func ResourceOf(key string) string {
	parts := strings.SplitN(key, "/", 4)
	n := 2
	if parts[0] == "custom" {
		n = 3
	}
	if len(parts) <= n {
		return key
	}
	return strings.Join(parts[:n], "/")
}
