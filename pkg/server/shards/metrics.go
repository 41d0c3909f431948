package shards

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var shardHeard = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Name: "regent_shards_heard", StabilityLevel: metrics.ALPHA,
	Help: "Whether another shard of the installation is heard: this replica's watches of it are open. 0: new clusters go elsewhere, and what waits for the shard waits.",
}, []string{"peer"})

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(shardHeard) })
