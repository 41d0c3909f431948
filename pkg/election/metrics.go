package election

import (
	"cmp"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/leaderelection"

	"github.com/regent-project/regent/pkg/election/internal/series"
)

// Two metrics are upstream's under upstream's names. They are set here and not by client-go, which has no series on a
// replica that never led, and leaves the gauge at 1 when a term is ended between two renewals. If the program has given
// client-go another provider of metrics, that one's gauge is kept right, too: see foreign.go.
var (
	leading  = series.NewGauge("leader_election_master_status", "1 while the reporting process leads under the Lease of this name, otherwise 0; of an election by ranges, how many of them it leads. Please make sure to group by name.", "name")
	slowpath = series.NewCounter("leader_election_slowpath_total",
		"How often a renewal of the Lease of this name had to read it first, because a write had failed. Please make sure to group by name.", "name")
	termsStarted = series.NewCounter("regent_election_terms_started_total", "Terms that this process has begun.", "name")
	termsEnded   = series.NewCounter("regent_election_terms_ended_total",
		"Terms of this process that have ended, by cause: on request if somebody asked for it, or another replica is preferred; step down if the leader's own work did.", "name", "cause")
	drainSeconds = series.NewHistogram("regent_election_drain_seconds", "How long the work of a term went on after the term had ended.",
		[]float64{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 100}, "name")
	quarantine = series.NewGauge("regent_election_quarantined",
		"1 while this process does not campaign because work of its last term has not stopped, otherwise 0.", "name")
	otherMode = series.NewGauge("regent_election_other_mode",
		"1 while this process stands by because leaders lead in another mode than its own, otherwise 0.", "name")
	unaccounted = series.NewGauge("regent_election_leader_unaccounted",
		"1 while the lease is held, for life or for far longer than a lease duration, by a process that is not heard, and may be dead: an operator has to say so. Otherwise 0.", "name")
)

// What is known of the Leases is computed when somebody asks.
var (
	_ = series.NewGaugeView("regent_election_epoch", "The epoch on the Lease of this name, as this process last saw it; 0 if it has seen none.",
		ofShown(func(e *Elector) float64 {
			_, epoch, _ := e.observe(time.Now())
			return float64(epoch)
		}, func(a, b float64) float64 { return a + b }), "name")
	_ = series.NewGaugeView("regent_election_leases", "For how many Leases this process stands under this name: one, or one for each range of an election by ranges.",
		ofShown(func(*Elector) float64 { return 1 }, func(a, b float64) float64 { return a + b }), "name")
	_ = series.NewGaugeView("regent_election_seconds_without_leader",
		"For how long this process has known nobody who holds an unexpired lease and is accounted for; 0 while it does.",
		ofShown(func(e *Elector) float64 {
			_, _, leaderless := e.observe(time.Now())
			return leaderless.Seconds()
		}, math.Max), "name")
)

// causes are the values of the label cause. What somebody asked for is another one than what the leader did itself.
var causes = []Cause{Deposed, RenewDeadline, Fenced, StepDown, onRequest, Shutdown, Failed}

const onRequest Cause = "on request"

// countTerm counts a term that begins.
func (e *Elector) countTerm() {
	if !e.cfg.presence {
		termsStarted.Inc(e.cfg.series())
	}
}

// countDrain counts for how long the work of a term went on after its end.
func (e *Elector) countDrain(lasted time.Duration) {
	if !e.cfg.presence {
		drainSeconds.Observe(lasted.Seconds(), e.cfg.series())
	}
}

// countEnd counts the end of a term.
func (e *Elector) countEnd(cause error) {
	if e.cfg.presence {
		return
	}
	label := causeOf(cause)
	if requested(cause) {
		label = onRequest
	}
	termsEnded.Inc(e.cfg.series(), string(label))
}

// series returns the name under which the metrics show the lease: those of one election are shown as one.
func (c Config) series() string { return cmp.Or(c.Election, c.Name) }

// show creates the series of an elector.
func show(e *Elector) {
	name := e.cfg.series()
	e.showLeading(false)
	shown.mu.Lock()
	defer shown.mu.Unlock()
	quarantine.Add(0, name)
	otherMode.Add(0, name)
	unaccounted.Add(0, name)
	slowpath.Show(name)
	termsStarted.Show(name)
	for _, cause := range causes {
		termsEnded.Show(name, string(cause))
	}
	drainSeconds.Show(name)
	if shown.electors[name] == nil {
		shown.electors[name] = map[string]*Elector{}
	}
	shown.electors[name][e.cfg.Name] = e
}

// Close removes the series of this Elector's Lease from the metrics, unless a later Elector of that name shows them, or
// another one of the same election. It is for a program whose elections come and go, such as one that has an Elector
// for each of its tenants; others need not call it. Run must have returned, and must not be called again.
func (e *Elector) Close() {
	name := e.cfg.series()
	shown.mu.Lock()
	defer shown.mu.Unlock()
	if shown.electors[name][e.cfg.Name] != e {
		return
	}
	delete(shown.electors[name], e.cfg.Name)
	if len(shown.electors[name]) > 0 {
		return
	}
	delete(shown.electors, name)
	for _, of := range []*series.Family{leading.Family, quarantine.Family, otherMode.Family, unaccounted.Family, slowpath.Family, termsStarted.Family, drainSeconds.Family} {
		of.Delete(name)
	}
	for _, cause := range causes {
		termsEnded.Delete(name, string(cause))
	}
}

// showLeading shows whether this process leads. A Presence is no leader. Another provider of metrics is told once of
// all leases of an election.
func (e *Elector) showLeading(so bool) {
	if e.cfg.presence {
		return
	}
	telling.Lock()
	defer telling.Unlock()
	leases, changed := e.showFlag(leading, &e.leading, so)
	name := e.cfg.series()
	first := so && leases == 1 || !so && leases == 0
	if (changed && first || !isShown(name)) && foreignProvider(name) {
		tellProvider(name, so) //nolint:contextcheck // nothing in it waits
	}
}

// telling keeps what another provider of metrics is told in the order in which it happened.
var telling sync.Mutex

// showQuarantine shows whether work of the last term has not stopped.
func (e *Elector) showQuarantine(so bool) { e.showFlag(quarantine, &e.quarantined, so) }

// showOtherMode and showUnaccounted show what people were told of why this process does not lead.
func (e *Elector) showOtherMode(so bool)   { e.showFlag(otherMode, &e.otherMode, so) }
func (e *Elector) showUnaccounted(so bool) { e.showFlag(unaccounted, &e.unaccounted, so) }

// showTold shows what people have been told.
func (e *Elector) showTold(told announcements) {
	e.showOtherMode(told.mode != "")
	e.showUnaccounted(told.holder != "")
}

// showFlag shows for how many leases of the election something is so. It returns that number, and whether it has
// changed.
func (e *Elector) showFlag(gauge series.Gauge, flag *atomic.Bool, so bool) (leases float64, changed bool) {
	changed = flag.Swap(so) != so
	switch {
	case e.cfg.presence:
		return 0, false
	case !changed:
		return gauge.Add(0, e.cfg.series()), false
	case so:
		return gauge.Add(1, e.cfg.series()), true
	default:
		return gauge.Add(-1, e.cfg.series()), true
	}
}

// shown has the latest Elector of each Lease in this process, by the names of the election and of the Lease, and under
// which names client-go keeps presences, with the names of their elections.
var shown = struct {
	mu        sync.Mutex
	electors  map[string]map[string]*Elector
	presences map[string]string
}{electors: map[string]map[string]*Elector{}, presences: map[string]string{}}

// metricsName returns the name under which client-go's elector shows metrics. That of a presence is the same in all
// processes and at any time, unlike that of its Lease: another provider of metrics than this package's may show it.
func (c Config) metricsName() string {
	if c.presence {
		return c.Election + "-presence"
	}
	return c.Name
}

// hide keeps a presence out of the metrics: it is no leader.
func hide(e *Elector) {
	shown.mu.Lock()
	defer shown.mu.Unlock()
	shown.presences[e.cfg.metricsName()] = e.cfg.Election
}

// isShown reports whether this package says itself whether this process leads under that name.
func isShown(name string) bool {
	shown.mu.Lock()
	defer shown.mu.Unlock()
	return shown.electors[name] != nil || shown.presences[name] != ""
}

// electionOf returns the name of the election of a presence, and any other name as it is.
func electionOf(name string) string {
	shown.mu.Lock()
	defer shown.mu.Unlock()
	return cmp.Or(shown.presences[name], name)
}

// ofShown returns a view of the elections whose Electors are shown: joined makes one value of those of their leases.
func ofShown(value func(*Elector) float64, joined func(a, b float64) float64) func(show func(float64, ...string)) {
	return func(show func(float64, ...string)) {
		shown.mu.Lock()
		defer shown.mu.Unlock()
		for name, electors := range shown.electors {
			all := 0.0
			for _, e := range electors {
				all = joined(all, value(e))
			}
			show(all, name)
		}
	}
}

// provider implements client-go's metrics, unless the program has given client-go another provider. It ignores what
// client-go says of leading for the electors of this package.
type provider struct{}

func (provider) NewLeaderMetric() leaderelection.LeaderMetric {
	asked.Store(true)
	return provider{}
}

func (provider) On(name string) {
	if !isShown(name) {
		leading.Set(1, name)
	}
}

func (provider) Off(name string) {
	if !isShown(name) {
		leading.Set(0, name)
	}
}

func (provider) SlowpathExercised(name string) { slowpath.Inc(electionOf(name)) }

var _ leaderelection.MetricsProvider = provider{}
