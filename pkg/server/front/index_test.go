package front

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
)

func TestTheIndexFindsClustersByNameAndByPath(t *testing.T) {
	x := newIndex("root")
	find := func(path string) place {
		p, _ := x.find(logicalcluster.NewPath(path))
		return p
	}
	x.set("root", entry{shard: "root", path: "root"})
	x.set("c1", entry{shard: "eu1", path: "root:a"})
	x.set("c2", entry{shard: "us1", path: "root:b"})
	for path, want := range map[string]place{
		"root": {"root", "root"}, "root:a": {"eu1", "c1"}, "c1": {"eu1", "c1"}, "root:b": {"us1", "c2"}, "c3": {}, "root:c": {}, "a": {},
	} {
		if got := find(path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}

	x.set("c1", entry{shard: "us1", path: "root:mine"}) // whoever says so has not had it first
	x.unset("c1", "us1")
	if got := find("root:a"); got != (place{"eu1", "c1"}) {
		t.Errorf("another shard takes a cluster away: %v", got)
	}

	x.set("c1", entry{shard: "eu1", path: "root:a", deleting: true})
	x.set("c4", entry{shard: "us1", path: "root:a"})
	if got := find("root:a"); got != (place{"us1", "c4"}) {
		t.Errorf("a cluster that goes does not give way: %v", got)
	}
	x.unset("c4", "us1")
	if got := find("root:a"); got != (place{"eu1", "c1"}) {
		t.Errorf("a cluster that goes is not found: %v", got)
	}
	x.set("c5", entry{shard: "us1", path: "root:b"})
	if got := find("root:b"); got != (place{}) {
		t.Errorf("of two clusters at a path one is preferred: %v", got)
	}
	x.set("root", entry{shard: "us1", path: "root"})
	x.unset("root", "root")
	x.set("root", entry{shard: "us1", path: "root"})
	x.set("system:admin", entry{shard: "us1"})
	if got := [2]place{find("root"), find("system:admin")}; got != [2]place{} {
		t.Errorf("a shard that is not the root shard has %v", got)
	}
	x.set("c1", entry{shard: "eu1", path: "root:moved"})
	if got := find("root:a"); got != (place{}) {
		t.Errorf("it is at its old path: %v", got)
	}

	x.forget("eu1")
	x.forget("us1")
	x.forget("root")
	if len(x.byName) != 0 || len(x.byPath) != 0 {
		t.Errorf("left: %v, %v", x.byName, x.byPath)
	}
}

func TestWhatASnapshotHasIsReplacedByWhatTheShardSays(t *testing.T) {
	x := newIndex("root")
	saved := &snapshot{
		Shards:   []savedShard{{Name: "eu1"}, {Name: "us1"}},
		Clusters: []savedEntry{{0, "gone", "root:gone"}, {0, "kept", "root:kept"}, {0, "moved", "root:moved"}, {1, "unheard", "root:unheard"}},
	}
	saved.fill(x)
	// a shard that is down does not lose its users to one that claims its clusters
	x.set("unheard", entry{shard: "eu1", path: "root:mine"})
	x.set("moved", entry{shard: "us1", path: "root:moved"})
	x.replace("eu1", map[logicalcluster.Name]entry{"kept": {shard: "eu1", path: "root:kept"}})
	for path, want := range map[string]place{
		"root:gone": {}, "root:kept": {"eu1", "kept"}, "root:moved": {}, "root:mine": {}, "root:unheard": {"us1", "unheard"},
	} {
		if got, _ := x.find(logicalcluster.NewPath(path)); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

// Whoever looks at all clusters lets news and requests through meanwhile, and misses none that is there all the time.
func TestTheIndexIsUsableWhileAllOfItIsLookedAt(t *testing.T) {
	x := newIndex("root")
	for n := range 5 * atOnce {
		x.set(logicalcluster.Name(fmt.Sprintf("c%d", n)), entry{shard: "eu1", path: fmt.Sprintf("root:%d", n)})
	}
	seen, changes := 0, 0
	x.each(func(name logicalcluster.Name, _ entry) {
		if !strings.HasPrefix(name.String(), "c") {
			return
		}
		if seen++; seen%atOnce == atOnce/2 { // its turn comes while the others are looked at
			done, added := make(chan struct{}), logicalcluster.Name(fmt.Sprintf("new%d", seen))
			go func() {
				defer close(done)
				x.set(added, entry{shard: "eu1"})
			}()
			changes++
			t.Cleanup(func() { <-done })
		}
	})
	if seen != 5*atOnce || changes != 5 {
		t.Errorf("%d of %d clusters seen, %d changes", seen, 5*atOnce, changes)
	}
}

// A cluster moves when the shard says so that has it. It may say so before or after the other one says that it has the
// cluster, and again when it is read anew.
func TestTheIndexFollowsAClusterThatMoves(t *testing.T) {
	at := func(x *index) string {
		p, _ := x.find(logicalcluster.NewPath("root:a"))
		return p.shard
	}
	for name, news := range map[string][]func(*index){
		"its old shard first": {
			func(x *index) { x.moved("c1", "eu1", "us1") },
			func(x *index) { x.set("c1", entry{shard: "us1", path: "root:a"}) },
		},
		"its new shard first": {
			func(x *index) { x.set("c1", entry{shard: "us1", path: "root:a"}) },
			func(x *index) { x.moved("c1", "eu1", "us1") },
		},
	} {
		x := newIndex("root")
		x.set("c1", entry{shard: "eu1", path: "root:a"})
		x.moved("c1", "us1", "asia") // it does not have it
		if at(x) != "eu1" {
			t.Errorf("%s: a shard that does not have it says where it is", name)
		}
		for _, one := range news {
			one(x)
		}
		if at(x) != "us1" {
			t.Errorf("%s: it is on %q", name, at(x))
		}
		x.moved("c1", "eu1", "asia") // long ago
		x.unset("c1", "eu1")
		x.replace("eu1", map[logicalcluster.Name]entry{})
		if at(x) != "us1" {
			t.Errorf("%s: its old shard takes it along: it is on %q", name, at(x))
		}
		x.unset("c1", "us1")
		if at(x) != "" {
			t.Errorf("%s: it is found after its deletion", name)
		}
	}
}
