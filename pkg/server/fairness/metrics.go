package fairness

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// The reasons of refusals.
const (
	reasonFull   = "full"
	reasonWaited = "waited"
)

// No metric has the tenant as a label: there may be 100,000.
var (
	waited = metrics.NewHistogram(&metrics.HistogramOpts{
		Name: "regent_requests_waited_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "How long requests waited for a place before they were handled.",
		Buckets: []float64{.001, .005, .02, .1, .5, 2, 8},
	})
	refused = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "regent_requests_refused_total", StabilityLevel: metrics.ALPHA,
		Help: "Requests that were answered with 429 because too many of their tenant wait (full), or because they have waited too long (waited).",
	}, []string{"reason"})
	placesTaken = metrics.NewGauge(&metrics.GaugeOpts{
		Name: "regent_requests_places_taken", StabilityLevel: metrics.ALPHA,
		Help: "Places that requests of clients take while they are handled. A request takes one, a large list more.",
	})
	slowAnswers = metrics.NewGauge(&metrics.GaugeOpts{
		Name: "regent_requests_places_reading", StabilityLevel: metrics.ALPHA,
		Help: "Answers that are kept for clients that read slowly, in places of 100 kB or 100 objects each.",
	})
	slowAnswersCut = metrics.NewCounter(&metrics.CounterOpts{
		Name: "regent_requests_cut_total", StabilityLevel: metrics.ALPHA,
		Help: "Answers that were cut off because their clients read slowly, and as many answers of the same tenant or user were kept as may be.",
	})
	requestsWaiting = metrics.NewGauge(&metrics.GaugeOpts{
		Name: "regent_requests_waiting", StabilityLevel: metrics.ALPHA, Help: "Requests of clients that wait for a place.",
	})
	tenantsWaiting = metrics.NewGauge(&metrics.GaugeOpts{
		Name: "regent_requests_tenants_waiting", StabilityLevel: metrics.ALPHA, Help: "Tenants whose requests wait for a place. One means that one tenant asks for too much, many mean that the replica is too small.",
	})
)

var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(waited, refused, placesTaken, slowAnswers, slowAnswersCut, requestsWaiting, tenantsWaiting)
	for _, reason := range []string{reasonFull, reasonWaited} {
		refused.WithLabelValues(reason).Add(0)
	}
})

// throttle lets one message through in a time.
type throttle struct {
	mu      sync.Mutex
	last    time.Time
	backlog int
}

// tellEvery is how often refusals are logged at most.
const tellEvery = 10 * time.Second

// now returns true if it is time for a message, and how many were kept back since the last one.
func (t *throttle) now(now time.Time) (backlog int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.last) < tellEvery {
		t.backlog++
		return 0, false
	}
	backlog, t.backlog, t.last = t.backlog, 0, now
	return backlog, true
}
