package harness

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Free ports are looked for from lowestPort to highestPort, below those that systems use for outgoing connections: a
// port that the system chooses may be an outgoing connection's a moment later.
const lowestPort, highestPort = 20_000, 32_000

// given are the ports that freePorts and portsInARow have returned in this process: scenarios that run side by side get
// different ones.
var given = struct {
	mu    sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// freePorts returns n different ports that nobody listens on.
func freePorts(n int) (ports []int, err error) {
	given.mu.Lock()
	defer given.mu.Unlock()
	for range highestPort - lowestPort {
		if len(ports) == n {
			return ports, nil
		}
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if !given.ports[port] && PortFree(port) {
			given.ports[port] = true
			ports = append(ports, port)
		}
	}
	return nil, errors.New("no port is free on 127.0.0.1")
}

// portsInARow returns the first of n consecutive ports that nobody listens on.
func portsInARow(n int) (first int, err error) {
	given.mu.Lock()
	defer given.mu.Unlock()
	free := func(port int) bool { return !given.ports[port] && PortFree(port) }
attempts:
	for range highestPort - lowestPort {
		first = lowestPort + rand.IntN(highestPort-lowestPort-n)
		for port := first; port < first+n; port++ {
			if !free(port) {
				continue attempts
			}
		}
		for port := first; port < first+n; port++ {
			given.ports[port] = true
		}
		return first, nil
	}
	return 0, errors.New("not so many ports in a row are free on 127.0.0.1")
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
