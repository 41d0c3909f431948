package storage

import (
	"errors"
	"sync"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// clientMetrics are the metrics of all gRPC clients of the process. Upstream's factory is linked in, though not used. It
// registers metrics of the same names when it is initialised, and keeps them private. The registry returns them.
var clientMetrics = sync.OnceValue(func() *grpcprom.ClientMetrics {
	made := grpcprom.NewClientMetrics()
	var registered prometheus.AlreadyRegisteredError
	if err := legacyregistry.Registerer().Register(made); errors.As(err, &registered) {
		if existing, ok := registered.ExistingCollector.(*grpcprom.ClientMetrics); ok {
			return existing
		}
	}
	return made
})

// The causes of refusals.
const (
	causeDeposed  = "deposed"  // another holder or epoch
	causeReleased = "released" // no holder
	causeDeleted  = "deleted"  // no Lease, or another of its name
	causeMissing  = "missing"  // no token where one is needed
)

var (
	refusals = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "regent_fencing_refused_total", StabilityLevel: metrics.ALPHA,
		Help: "Writes that were refused because their term is over (the Lease has another holder or epoch: deposed; none: released; was deleted: deleted), or for want of a token (missing).",
	}, []string{"cause"})
	tokensChecked = metrics.NewCounter(&metrics.CounterOpts{
		Name: "regent_fencing_tokens_checked_total", StabilityLevel: metrics.ALPHA,
		Help: "How often a fencing token was checked: once for each attempt of a write, and once more for what need not be written.",
	})
	guardRetries = metrics.NewCounter(&metrics.CounterOpts{
		Name: "regent_fencing_retries_total", StabilityLevel: metrics.ALPHA,
		Help: "How often a write with a fencing token was tried again because its lease had changed since it was last seen, mostly by a renewal.",
	})
)

var memberServes = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Name: "regent_etcd_member_serves", StabilityLevel: metrics.ALPHA,
	Help: "Whether a member of etcd answers this process. 0: it does not, another one does, and it is avoided until it answers. Not shown with one endpoint only.",
}, []string{"endpoint"})

var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(refusals, tokensChecked, guardRetries, memberServes)
	for _, cause := range []string{causeDeposed, causeReleased, causeDeleted, causeMissing} {
		refusals.WithLabelValues(cause).Add(0)
	}
})
