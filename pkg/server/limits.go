package server

import (
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
