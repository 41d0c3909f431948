package harness

import (
	"net"
	"strconv"
	"sync"
)

// given are the ports that freePorts has returned in this process: scenarios that run side by side get different ones.
var given = struct {
	mu    sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// freePorts returns n different ports that nobody listens on.
func freePorts(n int) (ports []int, err error) {
	given.mu.Lock()
	defer given.mu.Unlock()
	for len(ports) < n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // not before all are found, so that they differ
		if port := l.Addr().(*net.TCPAddr).Port; !given.ports[port] {
			given.ports[port] = true
			ports = append(ports, port)
		}
	}
	return ports, nil
}

// PortFree reports whether nobody listens on a loopback port.
func PortFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}
