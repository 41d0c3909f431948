package admission

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// The limits that a write can reach.
const (
	limitObjects    = "objects"
	limitBytes      = "bytes"
	limitWorkspaces = "workspaces"
	limitDepth      = "depth"
)

// The cluster is no label: there may be 100,000.
var quotaRefused = metrics.NewCounterVec(&metrics.CounterOpts{
	Name: "regent_quota_refused_total", StabilityLevel: metrics.ALPHA,
	Help: "Writes that were refused because their logical cluster would have stored more than it may, by the limit: objects, bytes, workspaces or depth.",
}, []string{"limit"})

func init() {
	legacyregistry.MustRegister(quotaRefused)
	for _, limit := range []string{limitObjects, limitBytes, limitWorkspaces, limitDepth} {
		quotaRefused.WithLabelValues(limit).Add(0)
	}
}
