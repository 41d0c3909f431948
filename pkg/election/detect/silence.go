package detect

import (
	"sync"
	"time"
)

const (
	// pulses is how often in each interval this process looks whether the leader is silent.
	pulses = 4
	// margin is how many times as late as the latest beat of the last minutes a beat may be. Delays on busy
	// machines have no useful mean: most are far below a millisecond, and a few are hundreds. An estimate by mean
	// and variance, such as that of the phi accrual failure detector (Hayashibara et al., 2004), would be too short
	// for those.
	margin = 4
	// mostPatience is how many times the configured silence the allowed one may become.
	mostPatience = 3
	// memory is for how long a delay counts, at least. It counts for twice as long at most.
	memory = 5 * time.Minute
)

// patience is how long a leader may be silent. It begins at the configured silence, and grows with the delays of beats
// that this process has seen in the last minutes, whatever their reason: the leader's machine, this machine, or the
// network between. So on machines that are quiet a silent leader is found soon, and on busy ones a leader that is only
// slow is not suspected.
//
// It belongs to a Detector, and not to the leader that is followed: who follows a new leader has seen nothing of it
// yet, but knows its own machine and network.
type patience struct {
	mu sync.Mutex
	// worst has the largest delay since began, and that of the memory before.
	worst [2]time.Duration
	began time.Time
}

// hear takes note of a beat, and of how late it came.
func (p *patience) hear(now time.Time, late time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(now)
	p.worst[0] = max(p.worst[0], late)
}

// allowed returns how long the leader may be silent now. least is the configured silence.
func (p *patience) allowed(now time.Time, least time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(now)
	return min(least+margin*max(p.worst[0], p.worst[1]), mostPatience*least)
}

// turn forgets what is too long ago. The caller holds mu.
func (p *patience) turn(now time.Time) {
	if past := now.Sub(p.began); past >= memory {
		p.worst = [2]time.Duration{0, p.worst[0]}
		if past >= 2*memory {
			p.worst[1] = 0
		}
		p.began = now
	}
}

// quiet measures for how long nothing has been heard, by this process's own pulse. While the process was paused, or got
// no CPU, it could hear nothing: such a time counts as one pulse or two.
type quiet struct {
	pulse time.Duration
	since time.Duration
	last  time.Time
}

// tick is called in each pulse, and returns how long the silence has been.
func (q *quiet) tick(now time.Time) time.Duration {
	if !q.last.IsZero() {
		q.since += min(now.Sub(q.last), 2*q.pulse)
	}
	q.last = now
	return q.since
}

// beat ends the silence. It returns how long that was.
func (q *quiet) beat(now time.Time) time.Duration {
	was := q.tick(now)
	q.since = 0
	return was
}
