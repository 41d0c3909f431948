package regenttest

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports of replicas are below those that systems use for outgoing connections: one that the system chooses may be an
// outgoing connection's a moment later, or while the replica that has it is down.
const lowestPort, highestPort = 20_000, 32_000

// given are the ports that this process has given to replicas.
var given = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// freePort returns a port that nobody listens on. Another process may be faster, so whoever gets it must be ready to
// ask for another one.
func freePort() (int, error) {
	given.Lock()
	defer given.Unlock()
	for range highestPort - lowestPort {
		port := lowestPort + rand.IntN(highestPort-lowestPort) //nolint:gosec // no secret
		if given.ports[port] {
			continue
		}
		listener, err := net.Listen("tcp", address(port)) //nolint:noctx // it does not wait
		if err != nil {
			continue
		}
		_ = listener.Close()
		given.ports[port] = true
		return port, nil
	}
	return 0, errors.New("no port is free on 127.0.0.1 from " + strconv.Itoa(lowestPort) + " to " + strconv.Itoa(highestPort))
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
