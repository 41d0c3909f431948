package storage

import (
	"errors"
	"sync"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// clientMetrics are the metrics of all gRPC clients of the process. Upstream's factory is linked in, though not used.
// It registers metrics of the same names when it is initialised, and keeps them private. The registry returns them.
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

var memberServes = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Name: "regent_etcd_member_serves", StabilityLevel: metrics.ALPHA,
	Help: "Whether a member of etcd answers this process. 0: it does not, another one does, and it is avoided until it answers. Not shown with one endpoint only.",
}, []string{"endpoint"})

var setAside = metrics.NewCounterVec(&metrics.CounterOpts{
	Name: "regent_storage_set_aside_total", StabilityLevel: metrics.ALPHA,
	Help: "How many times something was read of etcd that is no object of the resource, and was shown to nobody. The log names its revision.",
}, []string{"resource"})

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(memberServes, setAside) })
