package detect

import (
	"sync"
	"time"

	"github.com/regent-project/regent/pkg/election/internal/series"
)

// state says what contact a standby has with the leader's process.
type state string

const (
	// idle: there is no leader, or this process leads.
	idle state = "idle"
	// absent: the Lease does not say where the leader's probe is.
	absent state = "absent"
	// connecting: no attempt has finished yet, or contact was just lost.
	connecting state = "connecting"
	alive      state = "alive"
	silent     state = "silent"
	dead       state = "dead"
	// The other states say why there is no contact. If the leader dies, its lease has to expire.
	unreachable  state = "unreachable"
	refused      state = "refused"
	untrusted    state = "untrusted"
	unauthorized state = "unauthorized"
)

var states = []state{idle, absent, connecting, alive, silent, dead, unreachable, refused, untrusted, unauthorized}

var (
	contact = series.NewGauge("regent_failure_detection_contact",
		"1 for the state of this process's contact with the process of the leader under the Lease of this name, 0 for all other states; of an election by ranges, how many contacts are in each state. "+
			"While the state is absent, unreachable, refused, untrusted or unauthorized, a leader that crashes is succeeded only when its lease has expired.", "name", "state")
	failures = series.NewCounter("regent_failure_detection_failures_total",
		"Failed attempts to make contact with a leader's process that had not answered before, by reason.", "name", "reason")
	allowedSilence = series.NewGauge("regent_failure_detection_allowed_silence_seconds",
		"How long the leader that this process follows may be silent now, 0 if it follows nobody. It grows with the delays of beats in "+
			"the last minutes, whatever their reason.", "name")
	followers = series.NewGauge("regent_failure_detection_followers", "Replicas that follow this process now.", "name")
	expelled  = series.NewCounter("regent_failure_detection_expelled_total",
		"Connections to this process's probe that were closed before they had shown that they know the replicas' secret, by reason: late "+
			"(they took too long) or crowded (there were too many of them).", "name", "reason")
)

// shown has what is shown of each Lease by its Detectors.
var shown = struct {
	mu    sync.Mutex
	names map[string]*contacts
}{names: map[string]*contacts{}}

// contacts are those of the Detectors of one Lease. A leader of ranges has one with each other process.
type contacts struct {
	detectors int
	states    map[*following]state
}

// hide removes the series of a Detector, unless another one of that name shows them.
func hide(name string) {
	shown.mu.Lock()
	defer shown.mu.Unlock()
	c := shown.names[name]
	if c.detectors--; c.detectors > 0 {
		return
	}
	delete(shown.names, name)
	for _, s := range states {
		contact.Delete(name, string(s))
	}
	for _, reason := range notMade {
		failures.Delete(name, string(reason))
	}
	followers.Delete(name)
	allowedSilence.Delete(name)
	for _, reason := range expulsions {
		expelled.Delete(name, reason)
	}
}

// notMade are the reasons why contact is not made, and expulsions those of closed connections.
var (
	notMade    = []state{unreachable, refused, untrusted, unauthorized}
	expulsions = []string{"late", "crowded"}
)

// show creates the series of a detector.
func show(name string) {
	shown.mu.Lock()
	defer shown.mu.Unlock()
	if shown.names[name] == nil {
		shown.names[name] = &contacts{states: map[*following]state{}}
	}
	shown.names[name].detectors++
	shown.names[name].show(name)
	for _, reason := range notMade {
		failures.Show(name, string(reason))
	}
	followers.Set(0, name)
	showPatience(name, 0)
	for _, reason := range expulsions {
		expelled.Show(name, reason)
	}
}

func showPatience(name string, allowed time.Duration) {
	allowedSilence.Set(allowed.Seconds(), name)
}

// showState shows the state of a contact.
func (f *following) showState(now state) {
	shown.mu.Lock()
	defer shown.mu.Unlock()
	if c := shown.names[f.d.cfg.Name]; c != nil {
		c.states[f] = now
		c.show(f.d.cfg.Name)
	}
}

// hideState shows that there is no contact any more.
func (f *following) hideState() {
	shown.mu.Lock()
	defer shown.mu.Unlock()
	c := shown.names[f.d.cfg.Name]
	if c == nil {
		return
	}
	delete(c.states, f)
	c.show(f.d.cfg.Name)
	if len(c.states) == 0 {
		showPatience(f.d.cfg.Name, 0)
	}
}

// show shows how many contacts are in each state. The caller holds shown.mu.
func (c *contacts) show(name string) {
	counts := map[state]int{}
	for _, s := range c.states {
		counts[s]++
	}
	if len(c.states) == 0 {
		counts[idle] = 1
	}
	for _, s := range states {
		contact.Set(float64(counts[s]), name, string(s))
	}
}
