package front

import (
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

	x.set("c1", entry{shard: "eu1", path: "root:a", going: true})
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
	x.set("moved", entry{shard: "us1", path: "root:moved"}) // nobody has it but in the snapshot
	x.set("kept", entry{shard: "eu1", path: "root:kept"})
	x.forgetOld("eu1", func(name logicalcluster.Name) bool { return name == "kept" })
	for path, want := range map[string]place{
		"root:gone": {}, "root:kept": {"eu1", "kept"}, "root:moved": {"us1", "moved"}, "root:unheard": {"us1", "unheard"},
	} {
		if got, _ := x.find(logicalcluster.NewPath(path)); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}
