package detect

import (
	"context"
	"syscall"
	"testing"
	"time"
)

// A port that never answered with the leader's key says nothing: a firewall may be before it, or somebody else behind
// it.
func TestOnlyTheLeadersKeyIsAWitness(t *testing.T) {
	begin := func(replica string) *Detector { return open(t, replica, "127.0.0.1:0", patient) }
	leader, other, closed := begin("leader"), begin("other"), begin("closed")
	closed.Close()
	for name, test := range map[string]struct {
		behind *Detector
		want   bool
	}{
		"the leader":      {leader, true},
		"another process": {other, false},
		"nobody":          {closed, false},
	} {
		t.Run(name, func(t *testing.T) {
			standby := newDetector(t, "standby", "127.0.0.1:0")
			patient(standby)
			standby.secret = []byte("of another shard") // else the stream would last
			f := &following{d: standby, leader: leader.Contact()}
			met, err := f.meetWitness(t.Context(), test.behind.listener.Addr().String())
			if met != test.want || err == nil {
				t.Errorf("met: %v, want %v, with an error: %v", met, test.want, err)
			}
		})
	}
}

func TestWhatAWitnessTells(t *testing.T) {
	const long, short = time.Minute, time.Millisecond
	refused, timeout := error(syscall.ECONNREFUSED), context.DeadlineExceeded
	type attempt struct {
		took time.Duration
		met  bool
		err  error
	}
	type verdict struct {
		gone bool // since the key was last met
		wait time.Duration
	}
	for name, test := range map[string]struct {
		attempts []attempt
		want     []verdict
	}{
		"a port that always refused tells nothing, and is asked less and less": {
			[]attempt{{short, false, refused}, {short, false, refused}, {short, false, refused}},
			[]verdict{{false, 100 * time.Millisecond}, {false, 200 * time.Millisecond}, {false, 400 * time.Millisecond}},
		},
		"a stream that breaks, and a port that then refuses: the process is gone": {
			[]attempt{{long, true, nil}, {short, false, refused}},
			[]verdict{{false, hasty}, {true, 100 * time.Millisecond}},
		},
		"the port need not refuse at once: the kernel is still closing": {
			[]attempt{{long, true, nil}, {hastyDial, false, timeout}, {short, false, refused}},
			[]verdict{{false, hasty}, {false, hasty}, {true, 100 * time.Millisecond}},
		},
		"the death is told once": {
			[]attempt{{long, true, nil}, {short, false, refused}, {short, false, refused}},
			[]verdict{{false, hasty}, {true, 100 * time.Millisecond}, {false, 200 * time.Millisecond}},
		},
		"who comes back can die again": {
			[]attempt{{long, true, nil}, {short, false, refused}, {long, true, nil}, {short, false, refused}},
			[]verdict{{false, hasty}, {true, 100 * time.Millisecond}, {false, hasty}, {true, 100 * time.Millisecond}},
		},
		"who breaks what it accepts is asked less and less": {
			[]attempt{{short, true, nil}, {short, true, nil}, {short, true, nil}},
			[]verdict{{false, 100 * time.Millisecond}, {false, 200 * time.Millisecond}, {false, 400 * time.Millisecond}},
		},
		"who breaks what it accepts may die, too": {
			[]attempt{{short, true, nil}, {short, false, refused}},
			[]verdict{{false, 100 * time.Millisecond}, {true, 200 * time.Millisecond}},
		},
		"a port that answers nothing any more is asked less and less": {
			[]attempt{{long, true, nil}, {5 * time.Second, false, timeout}, {5 * time.Second, false, timeout}},
			[]verdict{{false, hasty}, {false, 100 * time.Millisecond}, {false, 200 * time.Millisecond}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var witness testimony
			now := time.Now()
			var lost time.Time
			for i, a := range test.attempts {
				began := now
				now = now.Add(a.took)
				if a.met {
					lost = now
				}
				gone, wait := witness.after(began, now, a.met, a.err)
				want := test.want[i]
				if gone.IsZero() == want.gone || want.gone && gone != lost {
					t.Errorf("attempt %d: gone since %v, contact was lost at %v; want gone: %v", i, gone, lost, want.gone)
				}
				if wait != want.wait {
					t.Errorf("attempt %d: the pause is %v, want %v", i, wait, want.wait)
				}
				now = now.Add(wait)
			}
		})
	}
}
