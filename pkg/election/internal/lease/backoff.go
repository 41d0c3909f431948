package lease

import (
	"context"
	"time"
)

// shortestBackoff is the first pause of a Backoff.
const shortestBackoff = 50 * time.Millisecond

// Backoff computes pauses between attempts. The pause doubles with each failure in a row, up to longest.
type Backoff struct{ next, longest time.Duration }

// NewBackoff returns a Backoff that begins with the shortest pause.
func NewBackoff(longest time.Duration) *Backoff {
	return &Backoff{next: shortestBackoff, longest: longest}
}

// Next returns the pause after another failure.
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
