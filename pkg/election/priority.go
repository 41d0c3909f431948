package election

import (
	"context"
	"slices"
	"time"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// standbys is what a leader knows of those who could succeed it: the highest priority of those of its mode, and whether there are
// none.
func (c Config) standbys() (highest int32, none bool) {
	if c.Detector == nil {
		return 0, false // unknown
	}
	none = true
	for _, standby := range c.Detector.Followers() {
		if standby.Mode != c.Mode {
			continue
		}
		if none || standby.Priority > highest {
			highest = standby.Priority
		}
		none = false
	}
	return highest, none
}

// follows reports whether the process follows this one that led as that holder last.
func (c Config) follows(holder string) bool {
	return c.Detector != nil && slices.ContainsFunc(c.Detector.Followers(), func(s Standby) bool { return s.Led == holder })
}

// preemption is when a standby asks a leader of a lower priority to make way. It is owned by Run's goroutine.
type preemption struct {
	able  time.Time // since when this process could have led
	asked time.Time // when it asked last
	tried time.Time // when it could not ask, last
}

// mostPreemptionDoublings caps what a replica waits whose terms fail: about a quarter of an hour, by default.
const mostPreemptionDoublings = 6

// preempt asks the holder to make way, if this process has a higher priority and could have led for long enough: a lease
// duration, and twice as long for each of its terms that failed, in a row. It returns when to look again.
func (e *Elector) preempt(ctx context.Context, seen lease.Observation, last lease.Presence, news News, now time.Time) (again time.Time) {
	if !e.cfg.Preempt || news.Sign != Alive || e.isOther(seen.Mode) || last.Priority >= e.cfg.Priority {
		return time.Time{}
	}
	since := e.preemption.able
	for _, later := range []time.Time{e.pace.rested, e.preemption.asked} {
		if later.After(since) {
			since = later
		}
	}
	due := since.Add(e.cfg.LeaseDuration << min(e.pace.failures, mostPreemptionDoublings))
	if again := e.preemption.tried.Add(e.cfg.RetryPeriod / headStarts); due.Before(again) {
		due = again
	}
	if now.Before(due) {
		return due
	}
	if !e.ask(ctx, seen) {
		e.preemption.tried = now
		return now.Add(e.cfg.RetryPeriod / headStarts)
	}
	e.preemption.asked = now
	return now.Add(e.cfg.LeaseDuration)
}
