package election

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Two metrics are upstream's under upstream's names. They are set here and not by component-base's provider, which has no
// series on a replica that never led and leaves the gauge at 1 when a term is ended between two renewals. A program that
// uses this package must not import that provider (component-base/metrics/prometheus/clientgo): two cannot register one
// name.
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
		Help: "Terms of this process that have ended, by cause.",
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

// causes are the values of the label cause.
var causes = []Cause{Deposed, RenewDeadline, Fenced, StepDown, Shutdown, Failed}

// show creates the series of an elector.
func show(e *Elector) {
	name := e.cfg.Name
	leading.WithLabelValues(name).Set(0)
	quarantine.WithLabelValues(name).Set(0)
	e.showOtherMode(false)
	e.showUnaccounted(false)
	slowpath.WithLabelValues(name).Add(0)
	termsStarted.WithLabelValues(name).Add(0)
	for _, cause := range causes {
		termsEnded.WithLabelValues(name, string(cause)).Add(0)
	}
	drainSeconds.WithLabelValues(name)
	shown.mu.Lock()
	defer shown.mu.Unlock()
	shown.electors[name] = e
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

var registerMetrics = sync.OnceValue(func() error {
	for _, m := range []metrics.Registerable{leading, slowpath, termsStarted, termsEnded, drainSeconds, quarantine, otherMode, unaccounted} {
		if err := legacyregistry.Register(m); err != nil {
			return err
		}
	}
	legacyregistry.CustomMustRegister(&views{})
	leaderelection.SetProvider(provider{})
	return nil
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
		epoch, leaderless := e.known(time.Now())
		ch <- metrics.NewLazyConstMetric(epochDesc, metrics.GaugeValue, float64(epoch), name)
		ch <- metrics.NewLazyConstMetric(leaderlessDesc, metrics.GaugeValue, leaderless.Seconds(), name)
	}
}

// provider implements client-go's metrics. It ignores what client-go says of leading for the electors of this package.
type provider struct{}

func (provider) NewLeaderMetric() leaderelection.LeaderMetric { return provider{} }

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
