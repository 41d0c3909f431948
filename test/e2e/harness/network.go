package harness

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/regent-project/regent/test/e2e/proxy"
)

// Way is a replica's own way to an etcd: a proxy to each member. All fail alike.
type Way struct {
	// URL is what the replica is to take for etcd's.
	URL     string
	proxies []*proxy.Proxy
}

// Way returns a way to it that lives as long as the test.
func (e *Etcd) Way(t testing.TB) *Way {
	t.Helper()
	w := &Way{}
	var urls []string
	for _, m := range e.Members {
		p := startProxy(t, at(t, m.URL))
		w.proxies = append(w.proxies, p)
		urls = append(urls, strings.Replace(m.URL, at(t, m.URL), p.Addr(), 1))
	}
	w.URL = strings.Join(urls, ",")
	return w
}

// Stall lets nothing pass any more.
func (w *Way) Stall() { w.each((*proxy.Proxy).Stall) }

// StallRequests lets nothing pass any more to etcd.
func (w *Way) StallRequests() { w.each((*proxy.Proxy).StallRequests) }

// StallAnswers lets nothing pass any more from etcd.
func (w *Way) StallAnswers() { w.each((*proxy.Proxy).StallAnswers) }

// Cut closes all connections, and new ones as they come.
func (w *Way) Cut() { w.each((*proxy.Proxy).Cut) }

// Resume ends all of these.
func (w *Way) Resume() { w.each((*proxy.Proxy).Resume) }

func (w *Way) each(do func(*proxy.Proxy)) {
	for _, p := range w.proxies {
		do(p)
	}
}

// putNetworksBetween puts a proxy between each member and its clients, and two between each two members, one for those
// connections that the one opens and one for the other's. Members know each other by one URL each: behind it, a
// connection goes the way of the member that has opened it.
func (e *Etcd) putNetworksBetween(t testing.TB) {
	t.Helper()
	for _, to := range e.Members {
		to.clients = startProxy(t, at(t, to.listens))
		to.URL = strings.Replace(to.listens, at(t, to.listens), to.clients.Addr(), 1)
		ways := map[*Member]string{}
		for _, from := range e.Members {
			if from == to {
				continue
			}
			between := startProxy(t, at(t, to.peerListens))
			from.peers, to.peers = append(from.peers, between), append(to.peers, between)
			ways[from] = between.Addr()
		}
		door, err := proxy.Route(func(from, to net.Addr) (string, error) {
			of, pids := map[int]string{}, []int{}
			for member, way := range ways {
				if pid := int(member.pid.Load()); pid != 0 {
					of[pid], pids = way, append(pids, pid)
				}
			}
			pid, err := opener(from, to, pids...)
			if err == nil && pid == 0 {
				err = fmt.Errorf("no other member has opened %v", from)
			}
			return of[pid], err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(door.Close)
		to.peerURL = strings.Replace(to.peerListens, at(t, to.peerListens), door.Addr(), 1)
	}
}

func startProxy(t testing.TB, target string) *proxy.Proxy {
	t.Helper()
	p, err := proxy.Start(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}
