package election

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// leading is upstream's gauge under upstream's name. It is set here and not by component-base's provider, which has no
// series on a replica that never led and leaves it at 1 when a term is ended between two renewals. A program that uses
// this package must not import that provider (component-base/metrics/prometheus/clientgo): two cannot register one name.
var leading = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Name:           "leader_election_master_status",
	Help:           "1 while the reporting process leads under the Lease of this name, otherwise 0. Please make sure to group by name.",
	StabilityLevel: metrics.ALPHA,
}, []string{"name"})

var registerMetrics = sync.OnceValue(func() error { return legacyregistry.Register(leading) })
