package detect

import (
	"testing"
	"time"
)

// listenTo has a follower with default settings listen to beats that come at the given times, with a pulse of its own
// that stops while it is paused. It returns after how long it finds the leader silent, and 0 if it does not.
func listenTo(cfg Config, beats []time.Duration, paused func(time.Duration) bool, until time.Duration) time.Duration {
	start, p := time.Unix(1000, 0), &patience{}
	q := quiet{pulse: cfg.Interval / pulses}
	var ticked time.Duration
	for at := time.Duration(0); at < until; at += time.Millisecond {
		if paused != nil && paused(at) {
			continue
		}
		for len(beats) > 0 && beats[0] <= at {
			p.hear(start.Add(at), q.beat(start.Add(at))-cfg.Interval)
			beats = beats[1:]
		}
		if at-ticked >= q.pulse {
			ticked = at
			if q.tick(start.Add(at)) >= p.allowed(start.Add(at), cfg.silence()) {
				return at
			}
		}
	}
	return 0
}

// beatsUntil returns beats of a leader that sends one every 200 ms until the end, each late by what late returns.
func beatsUntil(end time.Duration, late func(n int) time.Duration) (beats []time.Duration) {
	for n := 0; time.Duration(n)*200*time.Millisecond < end; n++ {
		at := time.Duration(n) * 200 * time.Millisecond
		if late != nil {
			at += late(n)
		}
		if len(beats) > 0 {
			at = max(at, beats[len(beats)-1])
		}
		beats = append(beats, at)
	}
	return beats
}

func TestSilenceIsJudgedByWhatTheseMachinesAreLike(t *testing.T) {
	const second, minute = time.Second, time.Minute
	every := func(n int, late time.Duration) func(int) time.Duration {
		return func(i int) time.Duration {
			if i%n == n-1 {
				return late
			}
			return 0
		}
	}
	for name, c := range map[string]struct {
		beats  []time.Duration
		paused func(time.Duration) bool
		until  time.Duration
		// silent is when the leader may be found silent, at the earliest and at the latest. Zero: never.
		earliest, latest time.Duration
	}{
		"a quiet machine, the leader vanishes":            {beatsUntil(10*second, nil), nil, minute, 10*second + 600*time.Millisecond, 10*second + 800*time.Millisecond},
		"the first beat is the last":                      {beatsUntil(100*time.Millisecond, nil), nil, minute, 750 * time.Millisecond, second},
		"a busy machine":                                  {beatsUntil(minute, every(50, 300*time.Millisecond)), nil, minute, 0, 0},
		"worse and worse":                                 {beatsUntil(minute, func(n int) time.Duration { return time.Duration(n%2*n) * 3 * time.Millisecond }), nil, minute, 0, 0},
		"a busy machine, the leader vanishes":             {beatsUntil(minute, every(50, 300*time.Millisecond)), nil, 2 * minute, minute + 1500*time.Millisecond, minute + 2200*time.Millisecond},
		"busy long ago, the leader vanishes":              {beatsUntil(15*minute, func(n int) time.Duration { return map[bool]time.Duration{n == 5: 400 * time.Millisecond}[true] }), nil, 16 * minute, 15*minute + 600*time.Millisecond, 15*minute + 800*time.Millisecond},
		"a standby that is paused now and then":           {beatsUntil(minute, nil), func(at time.Duration) bool { return at%(7*second) > 6*second }, minute, 0, 0},
		"a standby that is paused for as long as allowed": {beatsUntil(minute, nil), func(at time.Duration) bool { return at%(3*second) > 3*second-850*time.Millisecond }, minute, 0, 0},
		"a standby that hardly gets any CPU":              {beatsUntil(minute, nil), func(at time.Duration) bool { return at%(600*time.Millisecond) > 10*time.Millisecond }, minute, 0, 0},
		"both vanish, the standby comes back":             {beatsUntil(10*second, nil), func(at time.Duration) bool { return at > 10*second && at < 40*second }, minute, 40*second + 400*time.Millisecond, 41 * second},
		"a delay beyond all measure":                      {append(beatsUntil(10*second, nil), 10*second+500*time.Millisecond), nil, minute, 12*second + 600*time.Millisecond, 13*second + 100*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			got := listenTo(DefaultConfig(), c.beats, c.paused, c.until)
			if got < c.earliest || got > c.latest {
				t.Errorf("silent after %v, want %v to %v", got, c.earliest, c.latest)
			}
		})
	}
}
