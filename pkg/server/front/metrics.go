package front

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/regent-project/regent/pkg/server/pki"
)

// noShard stands for the shard of a request that the front answers itself. No shard can have this name.
const noShard = "-"

var (
	shardHeard = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "regent_front_shard_heard", StabilityLevel: metrics.ALPHA,
		Help: "Whether the front hears a shard: its watches of it are open, and the index has all clusters of the shard.",
	}, []string{"shard"})
	indexAge = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "regent_front_index_age_seconds", StabilityLevel: metrics.ALPHA,
		Help: "How old what the front knows of a shard's clusters is: 0 while the shard is heard, otherwise the time since then. -1: it has not been heard since the front started.",
	}, []string{"shard"})
	indexClusters = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "regent_front_index_clusters", StabilityLevel: metrics.ALPHA, Help: "Logical clusters of a shard that the front knows.",
	}, []string{"shard"})
	requests = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "regent_front_requests_total", StabilityLevel: metrics.ALPHA,
		Help: "Requests by the shard that was asked and the answer's status. Shard -: the front answered itself. Code 0: the client went before there was an answer.",
	}, []string{"shard", "code"})
	overheads = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: "regent_front_added_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "The latency that the front adds: the time until an answer's header was sent to the client, without the time that the shard took for it.",
		Buckets: []float64{.0001, .00025, .0005, .001, .002, .005, .01, .025, .05, .1, .5, 1},
	}, []string{"shard"})
	underWay = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "regent_front_requests_inflight", StabilityLevel: metrics.ALPHA, Help: "Requests and watches that are under way.",
	}, []string{"kind"})
	authorities = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "regent_front_certificate_authority", StabilityLevel: metrics.ALPHA,
		Help: "1 for each certificate authority of the installation that the front trusts, by the SHA-256 of its certificate. use is signs for the one that has signed the front's membership, else trusts.",
	}, []string{"fingerprint", "use"})
	membershipRefused = metrics.NewGauge(&metrics.GaugeOpts{
		Name: "regent_front_membership_refused", StabilityLevel: metrics.ALPHA,
		Help: "1 if what is in --membership cannot be used and what was read before stays in use, else 0.",
	})
	refusals = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "regent_front_refused_total", StabilityLevel: metrics.ALPHA,
		Help: "Requests that were answered with 429, by the limit: requests, requests-per-client, watches-per-client or requests-of-one-cluster.",
	}, []string{"limit"})
)

var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(shardHeard, indexAge, indexClusters, requests, overheads, underWay, authorities, membershipRefused, refusals)
	for _, limit := range []string{limitRequests, limitRequestsPerClient, limitWatchesPerClient, limitCluster} {
		refusals.WithLabelValues(limit).Add(0)
	}
})

// unmeasure removes a shard from the gauges. They are never emptied: somebody else may read them at the same time.
func unmeasure(shard string) {
	for _, gauge := range []*metrics.GaugeVec{shardHeard, indexAge, indexClusters} {
		gauge.DeleteLabelValues(shard)
	}
}

// tellStanding sets the metrics of the membership that is in use.
func tellStanding(s *standing) {
	registerMetrics()
	trusted := s.Trusted()
	authorities.Reset()
	for n, ca := range trusted {
		use := "trusts"
		if n == 0 {
			use = "signs"
		}
		authorities.WithLabelValues(pki.Fingerprint(ca), use).Set(1)
	}
}

// measure sets the gauges.
func (f *Front) measure() {
	counts := f.index.counts()
	f.mu.RLock()
	defer f.mu.RUnlock()
	for name, s := range f.shards {
		heard, age := 0.0, -1.0
		if s.isKnown() {
			heard, age = 1, 0
		} else if last := s.lastHeard(); !last.IsZero() {
			age = time.Since(last).Seconds()
		}
		shardHeard.WithLabelValues(name).Set(heard)
		indexAge.WithLabelValues(name).Set(age)
		indexClusters.WithLabelValues(name).Set(float64(counts[name]))
	}
	all, watches := f.inflight.underWay()
	underWay.WithLabelValues("requests").Set(float64(all))
	underWay.WithLabelValues("watches").Set(float64(watches))
}
