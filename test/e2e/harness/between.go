package harness

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/regent-project/regent/test/e2e/proxy"
)

// network is between the shards of an installation: a door for each replica, which is all that others know of it, and
// behind the door a way for each other shard, and one for fronts and users. A connection goes the way of whoever has
// opened it.
type network struct {
	mu      sync.Mutex
	members []*ShardMember
	ways    map[way]*proxy.Proxy
}

// way is that from the replicas of one shard to one of another.
type way struct {
	from *ShardMember // nil: fronts and users
	to   *Replica
}

// join makes the ways between a shard and those that have joined before it.
func (n *network) join(t testing.TB, m *ShardMember) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range m.Replicas {
		n.ways[way{nil, r}] = startProxy(t, at(t, r.URL))
	}
	for _, other := range n.members {
		for _, r := range m.Replicas {
			n.ways[way{other, r}] = startProxy(t, at(t, r.URL))
		}
		for _, r := range other.Replicas {
			n.ways[way{m, r}] = startProxy(t, at(t, r.URL))
		}
	}
	n.members = append(n.members, m)
}

// door makes a replica's door, and returns its URL.
func (n *network) door(t testing.TB, r *Replica) string {
	t.Helper()
	straight := at(t, r.URL)
	door, err := proxy.Route(func(from, to net.Addr) (string, error) {
		p, err := n.way(from, to, r)
		if p == nil {
			return straight, err
		}
		return p.Addr(), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(door.Close)
	return strings.Replace(r.URL, straight, door.Addr(), 1)
}

// way returns the way to a replica of the shard whose replica has opened a connection to a door, nil if none has.
func (n *network) way(from, door net.Addr, to *Replica) (*proxy.Proxy, error) {
	n.mu.Lock()
	of, pids := map[int]*ShardMember{}, []int{}
	for _, m := range n.members {
		for _, r := range m.Replicas {
			if pid := int(r.pid.Load()); pid != 0 {
				of[pid], pids = m, append(pids, pid)
			}
		}
	}
	n.mu.Unlock()
	pid, err := opener(from, door, pids...) // without the lock: it takes a millisecond
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ways[way{of[pid], to}], err
}

// Between is the network between two shards of InstallApart, both ways.
func (i *Installation) Between(a, b *ShardMember) *Way {
	return &Way{proxies: append(i.From(a, b).proxies, i.From(b, a).proxies...)}
}

// From is the way of connections that one shard of InstallApart opens to another. nil: that fronts, users and commands
// open.
func (i *Installation) From(a, b *ShardMember) *Way {
	i.network.mu.Lock()
	defer i.network.mu.Unlock()
	w := &Way{}
	for _, r := range b.Replicas {
		w.proxies = append(w.proxies, i.network.ways[way{a, r}])
	}
	return w
}
