package fairness

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	fq "k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	fcrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/klog/v2"
)

// Control has upstream's chain of handlers ask a Limiter, at the place where upstream's priority and fairness would be:
// behind authentication and impersonation, and in front of authorization. Upstream's filter then does what else there
// is to do: it answers 429 with Retry-After, ends the wait in time, and lets a watch leave its places when it has
// begun.
type Control struct {
	// Limiter shares the places.
	Limiter *Limiter
	// Flow says for whom the request in ctx counts, and Cost how many places it takes.
	Flow func(ctx context.Context, who flowcontrol.RequestDigest) Flow
	Cost func(ctx context.Context, who flowcontrol.RequestDigest) int
	// Cluster says in which logical cluster the request in ctx is. A write takes more of a place if many watch
	// there.
	Cluster func(ctx context.Context) string
	// Held is told how long the request in ctx has held its places, for each of them. Nobody is told if it is nil.
	Held func(ctx context.Context, held time.Duration)

	watchers watchers
	messages throttle
	waiting  atomic.Int64
}

// Refusals are held back: clients that ask again at once would keep a CPU busy with them.
const (
	// holdFor is how long a refusal is held back. Retry-After tells clients to wait as long once more.
	holdFor = time.Second
	// maxHeld is how many refusals are held back at a time. Further ones go out at once.
	maxHeld = 2048
)

// Handle implements flowcontrol.Interface.
func (c *Control) Handle(
	ctx context.Context, digest flowcontrol.RequestDigest,
	note func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string),
	_ func() fcrequest.WorkEstimate, _ fq.QueueNoteFn, execute func(),
) {
	note(&schema, &level, "")
	flow, began := c.Flow(ctx, digest), time.Now()
	size := c.Cost(ctx, digest)
	places := c.Limiter.bounded(size)
	leave, err := c.Limiter.Enter(ctx, flow, places)
	entered := time.Now()
	request.TrackAPFQueueWaitLatency(ctx, entered.Sub(began))
	if err != nil {
		c.refused(ctx, flow, err)
		c.holdBack(ctx, err)
		return
	}
	waited.Observe(entered.Sub(began).Seconds())
	at := seatFrom(ctx)
	at.take(c.Limiter, flow, places, size, leave)
	defer func() {
		total, leave := at.end()
		if c.Held != nil {
			c.Held(ctx, time.Duration(places)*total)
		}
		// The writer has its answer. To take the places back later needs nothing that could outlive the
		// server.
		if later := c.lingers(ctx, flow.Tenant, digest.RequestInfo); later > 0 {
			time.AfterFunc(later, leave)
			return
		}
		leave()
	}()
	execute()
}

func (c *Control) refused(ctx context.Context, flow Flow, err error) {
	reason := reasonFull
	if errors.Is(err, ErrWaited) {
		reason = reasonWaited
	}
	refused.WithLabelValues(reason).Inc()
	if since, ok := c.messages.now(time.Now()); ok {
		klog.FromContext(ctx).Info("Requests are refused with 429 because their tenant has too many: this one is an example",
			"tenant", flow.Tenant, "user", flow.User, "why", err, "refusedSinceTheLastMessage", since)
	}
}

// holdBack returns when the refusal may be sent. A request that has waited in vain is not held back any longer.
func (c *Control) holdBack(ctx context.Context, err error) {
	defer c.waiting.Add(-1)
	if c.waiting.Add(1) > maxHeld || !errors.Is(err, ErrFull) {
		return
	}
	timer := time.NewTimer(holdFor)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Upstream's filter names these two in headers of each answer. They stand for nothing.
var (
	schema = flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "fairness", UID: "fairness"}}
	level  = flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "fairness", UID: "fairness"}}
)

// Run implements flowcontrol.Interface. There is nothing to run.
func (c *Control) Run(<-chan struct{}) error { return nil }

// Install implements flowcontrol.Interface.
func (c *Control) Install(*mux.PathRecorderMux) {}

// GetMaxSeats implements flowcontrol.MaxSeatsTracker. Upstream's estimate is not asked for: it takes what all clusters
// have.
func (c *Control) GetMaxSeats(string) uint64 { return 0 }

// SetMaxSeats implements flowcontrol.MaxSeatsTracker.
func (c *Control) SetMaxSeats(string, uint64) {}

// ForgetPriorityLevel implements flowcontrol.MaxSeatsTracker.
func (c *Control) ForgetPriorityLevel(string) {}

var _ flowcontrol.Interface = (*Control)(nil)
