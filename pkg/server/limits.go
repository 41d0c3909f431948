package server

import (
	"cmp"
	"runtime"

	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/regent-project/regent/pkg/server/connections"
)

// applyTo sets the limits that upstream's handlers enforce.
func (l Limits) applyTo(c *genericapiserver.Config) {
	c.RequestTimeout = l.RequestTimeout
	c.MaxRequestsInFlight = l.RequestsInFlight
	c.MaxMutatingRequestsInFlight = l.MutatingRequestsInFlight
	c.GoawayChance = l.GoawayChance
	c.HSTSDirectives = l.HSTS
}

// connections are the limits on connections. This process itself needs none: see package loopback.
func (l Limits) connections() connections.Limits {
	return connections.Limits{Total: l.Connections, PerClient: l.ConnectionsPerClient}
}

// maxWaiting is how many requests of clients may wait for a place. One tenant alone may have half of them wait. Each takes some
// tens of KiB of memory.
const maxWaiting = 2048

// places returns how many places for requests there are, or 0 for no limit.
func (l Limits) places() int {
	most := l.RequestsInFlight + l.MutatingRequestsInFlight
	perCPU := l.RequestsPerCPU * cmp.Or(l.CPUs, runtime.GOMAXPROCS(0))
	if most == 0 || perCPU == 0 {
		return max(most, perCPU)
	}
	return min(most, perCPU)
}
