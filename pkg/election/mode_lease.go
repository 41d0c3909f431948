package election

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// Renewed is the mode in which the holder renews the lease. Another replica takes the lease when it has expired, or
// earlier if a Detector allows it (Config.Detection). This is how client-go's leader election works.
type Renewed struct{}

// Name returns "lease".
func (Renewed) Name() ModeName { return lease.Renewed }

// Electing returns false.
func (Renewed) Electing() bool { return false }

// Expires returns true.
func (Renewed) Expires() bool { return true }

func (Renewed) kind() kind {
	return kind{name: lease.Renewed, unreleased: expiresUnreleased, begin: func(*Elector) mode { return renewing{} }}
}

// expiresUnreleased is the value of kind.unreleased in modes that renew.
const expiresUnreleased = "The lease expires unreleased"

// renewing implements mode Renewed for one call of Run.
type renewing struct{ plain }

func (renewing) enter(ctx context.Context, h *heldLease) (claim, error) {
	return enterRunOrDie(ctx, &lock{heldLease: h})
}

// renewed is the claim of a term whose lease is renewed. It is one entry of RunOrDie that has acquired the lease.
type renewed struct {
	*lock
	cancel   context.CancelFunc
	returned chan struct{} // closed when RunOrDie has returned
}

// enterRunOrDie makes one attempt to acquire the lease, by entering RunOrDie, and waits for the outcome. That takes at
// most the request timeout. On error nothing is left running.
//
// The entry does not end with ctx, because it must renew until the term is drained. client-go's own log lines are
// discarded: they would log each term twice, and each lost race as an error.
func enterRunOrDie(ctx context.Context, l *lock) (claim, error) {
	ctx, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logr.Discard()))
	l.giveUp, l.acquired, l.failures = cancel, make(chan struct{}), make(chan struct{}, 1)
	r := &renewed{lock: l, cancel: cancel, returned: make(chan struct{})}
	go func() {
		defer close(r.returned)
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock:          l,
			Name:          l.cfg.metricsName(),
			LeaseDuration: l.cfg.LeaseDuration,
			RenewDeadline: l.cfg.RenewDeadline,
			RetryPeriod:   l.cfg.RetryPeriod,
			Coordinated:   l.named,
			// The lock finds both moments itself. client-go never joins OnStartedLeading, and calls
			// OnStoppedLeading also when it has acquired nothing.
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {},
				OnStoppedLeading: func() {},
			},
			// client-go would release before the term has drained, and on an observation that may be old.
			ReleaseOnCancel: false,
		})
		_ = l.fail(because(RenewDeadline, "could not renew within %v", l.cfg.RenewDeadline))
	}()
	select {
	case <-l.acquired:
		return r, nil
	case <-l.over:
		r.stop()
		_, err := l.lastLease()
		return nil, err
	}
}

func (r *renewed) grounds() grounds {
	_, lost := r.lastLease()
	return grounds{lost: lost, pin: r.pin, renewals: r.renewals(), named: r.named}
}

func (r *renewed) faltered() <-chan struct{} { return r.failures }

func (r *renewed) stop() {
	r.cancel()
	<-r.returned
}

var _ claim = (*renewed)(nil)
