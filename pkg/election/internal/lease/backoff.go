package lease

import (
	"context"
	"time"
)

// shortestBackoff is the first pause of a Backoff.
const shortestBackoff = 50 * time.Millisecond

// Backoff is how long to pause before what has failed is tried again: it doubles with each failure in a row.
type Backoff struct{ next, longest time.Duration }

// NewBackoff begins with the shortest pause.
func NewBackoff(longest time.Duration) *Backoff {
	return &Backoff{next: shortestBackoff, longest: longest}
}

// Next is the pause after another failure.
func (b *Backoff) Next() time.Duration {
	pause := b.next
	b.next = min(2*b.next, b.longest)
	return pause
}

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
