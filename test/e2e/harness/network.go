package harness

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
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

// opener returns which of some processes has opened a TCP connection between two loopback addresses, 0 if another one has: the kernel knows its
// socket's inode by the addresses, and a process's descriptors by their inodes.
func opener(from, to net.Addr, pids ...int) (int, error) {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return 0, err
	}
	inode := inodeOf(string(table), from.String(), to.String())
	if inode == "" {
		return 0, fmt.Errorf("nobody has the connection from %v to %v any more", from, to)
	}
	for _, pid := range pids {
		descriptors, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			return 0, err
		}
		for _, d := range descriptors {
			if link, err := os.Readlink(d); err == nil && link == "socket:["+inode+"]" {
				return pid, nil
			}
		}
	}
	return 0, nil
}

// inodeOf finds the socket with a local and a remote address in the kernel's table: they are its second and third field, in hexadecimal and
// the machine's byte order, the inode its tenth. Connections to different addresses may share a local port.
func inodeOf(table, local, remote string) string {
	localPort, remotePort := inHex(local), inHex(remote)
	for line := range strings.Lines(table) {
		if !strings.Contains(line, localPort) { // most lines: there are thousands after a while
			continue
		}
		fields := strings.Fields(line)
		if len(fields) > 9 && strings.HasSuffix(fields[1], localPort) && strings.HasSuffix(fields[2], remotePort) && fields[3] == established {
			return fields[9]
		}
	}
	return ""
}

// inHex is the port of an address, as the kernel's table ends addresses.
func inHex(address string) string {
	_, port, _ := net.SplitHostPort(address)
	n, _ := strconv.Atoi(port)
	return fmt.Sprintf(":%04X", n)
}

// established is that state of a connection in the kernel's table.
const established = "01"
