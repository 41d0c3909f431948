package etcdfence

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

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

// registerMetrics registers them where API servers keep theirs.
var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(refusals, tokensChecked, guardRetries)
	for _, cause := range []string{causeDeposed, causeReleased, causeDeleted, causeMissing} {
		refusals.WithLabelValues(cause).Add(0)
	}
})
