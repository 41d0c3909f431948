package election

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/component-base/metrics"

	"github.com/regent-project/regent/pkg/election/internal/registry"
)

// Two metrics are upstream's under upstream's names. They are set here and not by client-go, which has no series on a
// replica that never led, and leaves the gauge at 1 when a term is ended between two renewals. If the program has given
// client-go another provider of metrics, that one's gauge is kept right, too: see foreign.go.
var (
	leading = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "leader_election_master_status", StabilityLevel: metrics.ALPHA,
		Help: "1 while the reporting process leads under the Lease of this name, otherwise 0. Please make sure to group by name.",
	}, []string{"name"})
	slowpath = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "leader_election_slowpath_total", StabilityLevel: metrics.ALPHA,
		Help: "How often a renewal of the Lease of this name had to read it first, because a write had failed. Please make sure to group by name.",
	}, []string{"name"})
	termsStarted = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "regent_election_terms_started_total", StabilityLevel: metrics.ALPHA,
		Help: "Terms that this process has begun.",
	}, []string{"name"})
	termsEnded = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "regent_election_terms_ended_total", StabilityLevel: metrics.ALPHA,
		Help: "Terms of this process that have ended, by cause: on request if somebody asked for it, or another replica is preferred; step down if the leader's own work did.",
	}, []string{"name", "cause"})
	drainSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: "regent_election_drain_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "How long the work of a term went on after the term had ended.",
		Buckets: []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 100},
	}, []string{"name"})
	quarantine = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "regent_election_quarantined", StabilityLevel: metrics.ALPHA,
		Help: "1 while this process does not campaign because work of its last term has not stopped, otherwise 0.",
	}, []string{"name"})
	otherMode = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "regent_election_other_mode", StabilityLevel: metrics.ALPHA,
		Help: "1 while this process stands by because leaders lead in another mode than its own, otherwise 0.",
	}, []string{"name"})
	unaccounted = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "regent_election_leader_unaccounted", StabilityLevel: metrics.ALPHA,
		Help: "1 while the lease is held, for life or for far longer than a lease duration, by a process that is not heard, and may be dead: an operator has to say so. Otherwise 0.",
	}, []string{"name"})

	epochDesc = metrics.NewDesc("regent_election_epoch",
		"The epoch on the Lease of this name, as this process last saw it; 0 if it has seen none.", []string{"name"}, nil, metrics.ALPHA, "")
	leaderlessDesc = metrics.NewDesc("regent_election_seconds_without_leader",
		"For how long this process has known nobody who holds an unexpired lease and is accounted for; 0 while it does.", []string{"name"}, nil, metrics.ALPHA, "")
)

// causes are the values of the label cause. What somebody asked for is another one than what the leader did itself.
var causes = []Cause{Deposed, RenewDeadline, Fenced, StepDown, onRequest, Shutdown, Failed}

const onRequest Cause = "on request"

// countEnd counts the end of a term.
func countEnd(name string, cause error) {
	label := causeOf(cause)
	if requested(cause) {
		label = onRequest
	}
	termsEnded.WithLabelValues(name, string(label)).Inc()
}

// show creates the series of an elector.
func show(e *Elector) {
	name := e.cfg.Name
	e.showLeading(false)
	shown.mu.Lock()
	defer shown.mu.Unlock()
	quarantine.WithLabelValues(name).Set(0)
	e.showOtherMode(false)
	e.showUnaccounted(false)
	slowpath.WithLabelValues(name).Add(0)
	termsStarted.WithLabelValues(name).Add(0)
	for _, cause := range causes {
		termsEnded.WithLabelValues(name, string(cause)).Add(0)
	}
	drainSeconds.WithLabelValues(name)
	leading.WithLabelValues(name).Set(0)
	shown.electors[name] = e
}

// Close removes the series of this Elector's Lease from the metrics, unless a later Elector of that name shows them. It
// is for a program whose elections come and go, such as one that has an Elector for each of its tenants; others need
// not call it. Run must have returned, and must not be called again.
func (e *Elector) Close() {
	name := e.cfg.Name
	shown.mu.Lock()
	defer shown.mu.Unlock()
	if shown.electors[name] != e {
		return
	}
	delete(shown.electors, name)
	for _, gauge := range []*metrics.GaugeVec{leading, quarantine, otherMode, unaccounted} {
		gauge.DeleteLabelValues(name)
	}
	slowpath.DeleteLabelValues(name)
	termsStarted.DeleteLabelValues(name)
	for _, cause := range causes {
		termsEnded.DeleteLabelValues(name, string(cause))
	}
	drainSeconds.DeleteLabelValues(name)
}

// showLeading shows whether this process leads.
func (e *Elector) showLeading(so bool) {
	value := 0.0
	if so {
		value = 1
	}
	leading.WithLabelValues(e.cfg.Name).Set(value)
	if foreignProvider(e.cfg.Name) {
		tellProvider(e.cfg.Name, so) //nolint:contextcheck // nothing in it waits
	}
}

// showOtherMode and showUnaccounted show what people were told of why this process does not lead.
func (e *Elector) showOtherMode(so bool)   { showFlag(otherMode, &e.otherMode, e.cfg.Name, so) }
func (e *Elector) showUnaccounted(so bool) { showFlag(unaccounted, &e.unaccounted, e.cfg.Name, so) }

func showFlag(gauge *metrics.GaugeVec, flag *atomic.Bool, name string, so bool) {
	flag.Store(so)
	value := 0.0
	if so {
		value = 1
	}
	gauge.WithLabelValues(name).Set(value)
}

// shown has the latest Elector of each name in this process.
var shown = struct {
	mu       sync.Mutex
	electors map[string]*Elector
}{electors: map[string]*Elector{}}

func isShown(name string) bool {
	shown.mu.Lock()
	defer shown.mu.Unlock()
	return shown.electors[name] != nil
}

// NoMetrics is the value of Config.Metrics with which metrics are registered nowhere.
var NoMetrics = registry.None

// registerMetrics registers the metrics at a registry, for an Elector of a Lease of that name. It may be called any
// number of times.
func registerMetrics(to prometheus.Registerer, name string) error {
	foreign := foreignProvider(name)
	if err := registry.Register(to, termsStarted, termsEnded, drainSeconds, quarantine, otherMode, unaccounted); err != nil {
		return err
	}
	if err := registry.RegisterCreated(to, shownViews()); err != nil {
		return err
	}
	for _, m := range []metrics.Registerable{leading, slowpath} {
		if err := registry.Register(to, m); err != nil && !foreign {
			return err
		} // else the other provider has registered its own, which is as good
	}
	return nil
}

// shownViews returns the one collector of views.
var shownViews = sync.OnceValue(func() prometheus.Collector {
	v := &views{}
	v.Create(nil, v)
	return v
})

// views computes the metrics about the Leases when they are scraped.
type views struct{ metrics.BaseStableCollector }

func (v *views) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- epochDesc
	ch <- leaderlessDesc
}

func (v *views) CollectWithStability(ch chan<- metrics.Metric) {
	shown.mu.Lock()
	defer shown.mu.Unlock()
	for name, e := range shown.electors {
		_, epoch, leaderless := e.observe(time.Now())
		ch <- metrics.NewLazyConstMetric(epochDesc, metrics.GaugeValue, float64(epoch), name)
		ch <- metrics.NewLazyConstMetric(leaderlessDesc, metrics.GaugeValue, leaderless.Seconds(), name)
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
		leading.WithLabelValues(name).Set(1)
	}
}

func (provider) Off(name string) {
	if !isShown(name) {
		leading.WithLabelValues(name).Set(0)
	}
}

func (provider) SlowpathExercised(name string) { slowpath.WithLabelValues(name).Inc() }

var (
	_ metrics.StableCollector        = (*views)(nil)
	_ leaderelection.MetricsProvider = provider{}
)
