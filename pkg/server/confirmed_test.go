package server

import (
	"fmt"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"

	"github.com/regent-project/regent/test/etcdtest"
)

// What is confirmed of a cluster is known to whoever uses the same etcd, and never taken for that of another cluster.
func TestWhereAClusterIsOutlivesTheReplica(t *testing.T) {
	way := etcdtest.Start(t)
	replica := func() *confirmed { return &confirmed{client: etcdtest.Client(t, way), prefix: "/registry"} }
	first := replica()
	if home := first.Home(t.Context(), "c1"); home != "" {
		t.Errorf("before anything is known it is on %q", home)
	}
	first.Remember(t.Context(), "c1", "a")
	if home := replica().Home(t.Context(), "c1"); home != "a" {
		t.Errorf("for the next replica it is on %q", home)
	}
	var namesake logicalcluster.Name // of the same place
	for n := 0; namesake == ""; n++ {
		if name := logicalcluster.Name(fmt.Sprint("other", n)); first.key(name) == first.key("c1") {
			namesake = name
		}
	}
	if home := first.Home(t.Context(), namesake); home != "" {
		t.Errorf("another cluster is on %q", home)
	}
	first.Remember(t.Context(), namesake, "b")
	if a, b := first.Home(t.Context(), "c1"), first.Home(t.Context(), namesake); a != "" || b != "b" {
		t.Errorf("when another one has its place: %q and %q", a, b)
	}
	if _, err := first.client.Put(t.Context(), first.key("c1"), "noise"); err != nil {
		t.Fatal(err)
	}
	if home := first.Home(t.Context(), "c1"); home != "" {
		t.Errorf("by noise it is on %q", home)
	}
}
