package tracing

import (
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"k8s.io/klog/v2"
)

// lossReminder is how often a collector that does not take spans is logged.
const lossReminder = time.Minute

var losses sync.Once

// reportLosses logs what OpenTelemetry's library reports, which would print each error to standard error. The process
// has one handler: the first logger counts.
func reportLosses(log klog.Logger) {
	losses.Do(func() {
		var mu sync.Mutex
		var told time.Time
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if now := time.Now(); now.Sub(told) >= lossReminder {
				told = now
				log.Error(err, "Spans are lost: look after the collector that --tracing-config-file names")
			}
		}))
	})
}
