package terms

import (
	"context"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/transport"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control"
)

// phase is a part of a takeover. The first three follow each other. The others all begin when the lease is acquired.
type phase string

const (
	// detect begins with the first symptom (the connection broke, the last sign of life, the release) and ends with
	// the decision to take over.
	detectPhase phase = "detect"
	// break ends when the acquiring write is sent. It consists of back-offs and head starts, if any.
	breakPhase phase = "break"
	// acquire ends when that write is answered.
	acquirePhase phase = "acquire"
	// caches ends when the first controller has warm caches and its handlers.
	cachesPhase phase = "caches"
	// first_reconcile ends when the first reconcile has returned, first_write when the first write is answered.
	reconcilePhase phase = "first_reconcile"
	writePhase     phase = "first_write"
)

var phaseSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
	Name: "regent_takeover_phase_seconds", StabilityLevel: metrics.ALPHA,
	Help: "How long the phases of this process's takeovers of the Lease of this name took, by what triggered them. " +
		"detect, break and acquire follow each other; caches, first_reconcile and first_write begin when the lease is acquired, " +
		"and count if they are over within 10 s.",
	Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 60},
}, []string{"name", "trigger", "phase"})

var registerTimeline = sync.OnceValue(func() error { return legacyregistry.Register(phaseSeconds) })

// showTakeovers creates the series that count takeovers, with zeros: otherwise an alert would miss the first one. The
// series of the other phases appear with the first takeover.
func showTakeovers(lease string) {
	for _, trigger := range election.Triggers {
		phaseSeconds.WithLabelValues(lease, string(trigger), string(acquirePhase))
	}
}

// timelineLimit is how long after its beginning a term's line is logged, even if the term has not written yet.
const timelineLimit = 10 * time.Second

// timeline measures how a term of this replica began: the takeover and its first work.
type timeline struct {
	lease    string
	epoch    int64
	takeover election.Takeover

	mu      sync.Mutex
	reached map[phase]time.Duration
	told    bool
	done    chan struct{} // closed when told is set
}

// newTimeline begins to measure. The term's work must use the returned context. Call end when that work has ended. A
// term without election is not measured.
func newTimeline(ctx context.Context, lease string, epoch int64, takeover election.Takeover) (_ *timeline, measured context.Context, end func()) {
	t := &timeline{lease: lease, epoch: epoch, takeover: takeover, reached: map[phase]time.Duration{}, done: make(chan struct{})}
	if takeover.Acquired.IsZero() {
		t.told = true
		close(t.done)
		return t, ctx, func() {}
	}
	t.reach(ctx, detectPhase, takeover.Decided.Sub(takeover.Symptom))
	t.reach(ctx, breakPhase, takeover.Sent.Sub(takeover.Decided))
	t.reach(ctx, acquirePhase, takeover.Acquired.Sub(takeover.Sent))
	over := make(chan struct{})
	timer := time.AfterFunc(timelineLimit, func() {
		defer close(over)
		t.tell(ctx)
	})
	measured = control.WithMilestones(ctx, func(m control.Milestone) {
		switch m {
		case control.Working:
			t.since(ctx, cachesPhase)
		case control.Reconciled:
			t.since(ctx, reconcilePhase)
		}
	})
	return t, measured, func() {
		if !timer.Stop() {
			<-over
		}
		t.tell(ctx)
	}
}

// since ends a phase that began when the lease was acquired.
func (t *timeline) since(ctx context.Context, p phase) {
	t.reach(ctx, p, time.Since(t.takeover.Acquired))
}

// reach records how long a phase took. Only the first call for each phase counts.
func (t *timeline) reach(ctx context.Context, p phase, took time.Duration) {
	t.mu.Lock()
	_, again := t.reached[p]
	if !again && !t.told {
		t.reached[p] = took
		phaseSeconds.WithLabelValues(t.lease, string(t.takeover.Trigger), string(p)).Observe(took.Seconds())
	}
	_, worked := t.reached[reconcilePhase]
	_, wrote := t.reached[writePhase]
	t.mu.Unlock()
	if worked && wrote {
		t.tell(ctx)
	}
}

// tell logs the term's line, and records its spans. Only the first call counts.
func (t *timeline) tell(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.told {
		return
	}
	t.told = true
	close(t.done)
	keysAndValues := []any{"trigger", t.takeover.Trigger}
	for _, p := range []phase{detectPhase, breakPhase, acquirePhase, cachesPhase, reconcilePhase, writePhase} {
		if took, ok := t.reached[p]; ok {
			keysAndValues = append(keysAndValues, string(p), took.Round(10*time.Microsecond))
		}
	}
	klog.FromContext(ctx).Info("Takeover", keysAndValues...)
	t.record(ctx)
}

// phases returns how long the phases took that are over, in seconds.
func (t *timeline) phases() map[string]float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[string]float64{}
	for p, took := range t.reached {
		out[string(p)] = took.Round(10 * time.Microsecond).Seconds()
	}
	return out
}

// writes returns the wrapper for the requests of the term's clients.
func (t *timeline) writes(ctx context.Context) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper {
		return &firstWrite{next: next, wrote: func() { t.since(ctx, writePhase) }}
	}
}

// firstWrite calls wrote after each successful write.
type firstWrite struct {
	next  http.RoundTripper
	wrote func()
}

// RoundTrip implements http.RoundTripper. It changes neither request nor response.
func (f *firstWrite) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := f.next.RoundTrip(req)
	if err == nil && resp.StatusCode < http.StatusMultipleChoices && req.Method != http.MethodGet {
		f.wrote()
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find the transport beneath, to cancel requests.
func (f *firstWrite) WrappedRoundTripper() http.RoundTripper { return f.next }

// record makes the spans of a takeover, after the fact: one of it all, and one of each phase. The caller holds mu.
func (t *timeline) record(ctx context.Context) {
	tracers := controllers.TracersOf(ctx)
	if tracers == nil {
		return
	}
	at := t.takeover
	began := map[phase]time.Time{
		detectPhase: at.Symptom, breakPhase: at.Decided, acquirePhase: at.Sent,
		cachesPhase: at.Acquired, reconcilePhase: at.Acquired, writePhase: at.Acquired,
	}
	end := at.Acquired
	for p, took := range t.reached {
		if over := began[p].Add(took); over.After(end) {
			end = over
		}
	}
	ctx, whole := tracers.Terms.Start(ctx, "takeover", trace.WithNewRoot(), trace.WithTimestamp(at.Symptom), trace.WithAttributes(
		attribute.String("regent.lease", t.lease), attribute.Int64("regent.epoch", t.epoch), attribute.String("regent.trigger", string(at.Trigger)),
	))
	for p, took := range t.reached {
		_, span := tracers.Terms.Start(ctx, string(p), trace.WithTimestamp(began[p]))
		span.End(trace.WithTimestamp(began[p].Add(took)))
	}
	whole.End(trace.WithTimestamp(end))
}
