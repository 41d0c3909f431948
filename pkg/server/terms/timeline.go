package terms

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/transport"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
)

// phase is a part of a takeover. The first three follow each other. The others begin when the lease is acquired.
type phase string

const (
	// detect lasts from the first symptom (contact broke off, the last sign of life, the release) until this replica was certain
	// enough to take over.
	detectPhase phase = "detect"
	// break lasts until the write that acquires is sent: back-off and head starts, if any.
	breakPhase phase = "break"
	// acquire lasts until that write is answered.
	acquirePhase phase = "acquire"
	// caches lasts until the first controller has warm caches and its handlers.
	cachesPhase phase = "caches"
	// first_reconcile lasts until the first reconcile has returned, first_write until the first write is answered.
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

// timelineLimit is how long a term may take to its first write before its line is logged without.
const timelineLimit = 10 * time.Second

// timeline measures how one term of this replica came about and began to work.
type timeline struct {
	lease    string
	takeover election.Takeover

	mu      sync.Mutex
	reached map[phase]time.Duration
	told    bool
}

// newTimeline begins to measure. The term's work gets the returned context; end must be called when that work has ended. In a term
// without election nothing is measured.
func newTimeline(ctx context.Context, lease string, takeover election.Takeover) (_ *timeline, measured context.Context, end func()) {
	t := &timeline{lease: lease, takeover: takeover, reached: map[phase]time.Duration{}}
	if takeover.Acquired.IsZero() {
		t.told = true
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
	measured = controllers.WithMilestones(ctx, func(m controllers.Milestone) {
		switch m {
		case controllers.Working:
			t.since(ctx, cachesPhase)
		case controllers.Reconciled:
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

// reach records how long a phase took, once; later calls for the same phase do nothing.
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

// tell logs the term's line, once.
func (t *timeline) tell(ctx context.Context) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.told {
		return
	}
	t.told = true
	keysAndValues := []any{"trigger", t.takeover.Trigger}
	for _, p := range []phase{detectPhase, breakPhase, acquirePhase, cachesPhase, reconcilePhase, writePhase} {
		if took, ok := t.reached[p]; ok {
			keysAndValues = append(keysAndValues, string(p), took.Round(10*time.Microsecond))
		}
	}
	klog.FromContext(ctx).Info("Takeover", keysAndValues...)
}

// writes returns the transport that the requests of the term's clients pass.
func (t *timeline) writes(ctx context.Context) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper {
		return &firstWrite{next: next, wrote: func() { t.since(ctx, writePhase) }}
	}
}

// firstWrite calls wrote each time that a write has succeeded.
type firstWrite struct {
	next  http.RoundTripper
	wrote func()
}

// RoundTrip changes nothing.
func (f *firstWrite) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := f.next.RoundTrip(req)
	if err == nil && resp.StatusCode < http.StatusMultipleChoices && req.Method != http.MethodGet {
		f.wrote()
	}
	return resp, err
}

// WrappedRoundTripper is for client-go, which looks for what it can cancel.
func (f *firstWrite) WrappedRoundTripper() http.RoundTripper { return f.next }
