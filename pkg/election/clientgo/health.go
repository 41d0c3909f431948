package clientgo

import (
	"net/http"
	"sync/atomic"
	"time"
)

// HealthzAdaptor is a health check that may be installed before there is a LeaderElector, as client-go's.
type HealthzAdaptor struct {
	timeout time.Duration
	elector atomic.Pointer[LeaderElector]
}

// NewLeaderHealthzAdaptor returns a check that fails when the work of a term has not stopped that long after its lease
// must have expired.
func NewLeaderHealthzAdaptor(timeout time.Duration) *HealthzAdaptor {
	return &HealthzAdaptor{timeout: timeout}
}

// SetLeaderElection says which elector to check.
func (h *HealthzAdaptor) SetLeaderElection(le *LeaderElector) { h.elector.Store(le) }

// Name returns the name of the check, which is client-go's.
func (h *HealthzAdaptor) Name() string { return "leaderElection" }

// Check returns LeaderElector.Check's error, and nil as long as there is no elector.
func (h *HealthzAdaptor) Check(*http.Request) error {
	if le := h.elector.Load(); le != nil {
		return le.Check(h.timeout)
	}
	return nil
}
