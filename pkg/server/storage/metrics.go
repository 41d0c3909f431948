package storage

import (
	"errors"
	"sync"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"
)

// clientMetrics are those of all gRPC clients of the process. Upstream's factory, which is linked in though not used,
// registers a set of the same names when it is initialised and keeps it private: the registry hands it out.
var clientMetrics = sync.OnceValue(func() *grpcprom.ClientMetrics {
	metrics := grpcprom.NewClientMetrics()
	var registered prometheus.AlreadyRegisteredError
	if err := legacyregistry.Registerer().Register(metrics); errors.As(err, &registered) {
		if existing, ok := registered.ExistingCollector.(*grpcprom.ClientMetrics); ok {
			return existing
		}
	}
	return metrics
})
