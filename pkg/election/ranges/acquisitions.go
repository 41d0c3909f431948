package ranges

import (
	"context"
	"sync"
	"time"
)

// mostShareOfRetry says how long the work of a term waits for other acquisitions at most: a retry period by this.
const mostShareOfRetry = 100

// acquisitions counts the writes of Leases that are under way. The work of a term that has begun waits for those that
// began before: a process that takes over ranges of a dead one takes all their leases first. Else the beginning of the
// first term's work takes the CPU from the acquisitions that others wait for. The zero value is ready.
type acquisitions struct {
	mu    sync.Mutex
	n     int
	ended chan struct{} // closed when n becomes 0; nil while nobody waits
}

// begin counts one until the returned function is called.
func (a *acquisitions) begin() (end func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.n--; a.n == 0 && a.ended != nil {
			close(a.ended)
			a.ended = nil
		}
	}
}

// wait returns when none is under way, or most has passed, or ctx has ended.
func (a *acquisitions) wait(ctx context.Context, most time.Duration) {
	a.mu.Lock()
	if a.n == 0 {
		a.mu.Unlock()
		return
	}
	if a.ended == nil {
		a.ended = make(chan struct{})
	}
	ended := a.ended
	a.mu.Unlock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
	case <-ctx.Done():
	}
}
