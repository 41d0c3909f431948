package status

import (
	"fmt"
	"time"
)

// MostMoves is how many logical clusters Moves names.
const MostMoves = 20

// Moves are the logical clusters that come to a shard, may leave it, or have left it and are not removed yet.
type Moves struct {
	// Number is how many there are. Oldest are those for which that is so for longest, MostMoves at the most.
	Number int    `json:"number"`
	Oldest []Move `json:"oldest"`
}

// Move is a logical cluster that moves. Path may be empty: it has none, or is unknown.
type Move struct {
	Cluster string `json:"cluster"`
	Path    string `json:"path,omitempty"`
	// State is Comes, Leaves or HasLeft. Shard is the one at the other end: empty, if it comes out of a file.
	State string `json:"state"`
	Shard string `json:"shard,omitempty"`
	// Since is when it began to come, or when its writes began to wait, by that shard's clock. Zero: unknown.
	Since time.Time `json:"since,omitzero"`
}

// The states of a Move. One that leaves is still served by this shard, and its writes wait. One that has left is served
// by the other shard, and this one still has its objects.
const (
	Comes   = "comes"
	Leaves  = "leaves"
	HasLeft = "has left"
)

// leftFor is how long a shard may keep what has left it: others have to follow first.
const leftFor = 10 * time.Minute

// movesEnd tells of what has left a shard long ago. Nothing waits for that but room, and its former shard's removal.
func movesEnd(s *shardView) {
	if s.Moves == nil {
		return
	}
	var first Move
	n := 0
	for _, m := range s.Moves.Oldest {
		if m.State == HasLeft && !m.Since.IsZero() && s.now.Sub(m.Since) > leftFor {
			if n == 0 {
				first = m
			}
			n++
		}
	}
	if n == 0 {
		return
	}
	what := fmt.Sprintf("Workspace %s has moved to shard %s, and this shard still has its objects.", first.Name(), first.Shard)
	if n > 1 {
		what = fmt.Sprintf("%d workspaces have moved away, such as %s to shard %s, and this shard still has their objects.", n, first.Name(), first.Shard)
	}
	s.add(Notice, "", kindMoved, what+" It removes them once the new shard has them, and all shards with workspaces above and below have heard of it.",
		"Look for shards that are not heard. If the new shard was restored from a backup, run regent shard reconcile with its name.")
}

// Name returns the path, or the name of the logical cluster if there is none.
func (m Move) Name() string {
	if m.Path != "" {
		return m.Path
	}
	return m.Cluster
}
