package election

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// Renewed is the mode in which the holder renews the lease, and is succeeded when it has expired, or earlier by Config.Detection.
type Renewed struct{}

// Name returns "lease".
func (Renewed) Name() ModeName { return lease.Renewed }

// Electing returns false.
func (Renewed) Electing() bool { return false }

func (Renewed) kind() kind {
	return kind{name: lease.Renewed, unreleased: expiresUnreleased, begin: func(*Elector) mode { return renewing{} }}
}

// expiresUnreleased is what becomes of a lease that is renewed.
const expiresUnreleased = "The lease expires unreleased"

// renewing is Renewed, for one call of Run.
type renewing struct{ plain }

func (renewing) enter(ctx context.Context, h *heldLease) (claim, error) {
	return enterRunOrDie(ctx, &lock{heldLease: h})
}

// renewed is a term's claim on a lease that is renewed: an entry of RunOrDie that has acquired.
type renewed struct {
	*lock
	cancel   context.CancelFunc
	returned chan struct{} // closed when RunOrDie has returned
}

// enterRunOrDie makes one attempt to acquire, by an entry of RunOrDie, and waits for its outcome, which takes at most the
// request timeout. On error nothing is left running.
//
// The entry does not end with ctx: renewing must go on until the term is drained. client-go's own log lines are left
// out; they would tell of each term twice and of each race that is lost as an error.
func enterRunOrDie(ctx context.Context, l *lock) (claim, error) {
	ctx, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logr.Discard()))
	l.giveUp, l.acquired, l.failures = cancel, make(chan struct{}), make(chan struct{}, 1)
	r := &renewed{lock: l, cancel: cancel, returned: make(chan struct{})}
	go func() {
		defer close(r.returned)
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock:          l,
			Name:          l.cfg.Name,
			LeaseDuration: l.cfg.LeaseDuration,
			RenewDeadline: l.cfg.RenewDeadline,
			RetryPeriod:   l.cfg.RetryPeriod,
			Coordinated:   l.named,
			// Neither callback tells enough: the first is never joined, the second also comes when nothing was
			// acquired. The lock knows both moments.
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {},
				OnStoppedLeading: func() {},
			},
			// client-go would release before the term has drained, on an observation that may be old.
			ReleaseOnCancel: false,
		})
		_ = l.fail(because(RenewDeadline, "could not renew within %v", l.cfg.RenewDeadline))
	}()
	select {
	case <-l.acquired:
		return r, nil
	case <-l.over:
		r.stop()
		_, err := l.held()
		return nil, err
	}
}

func (r *renewed) grounds() grounds {
	_, lost := r.held()
	return grounds{lost: lost, pin: r.pin, renewals: r.lock.renewed(), named: r.named}
}

func (r *renewed) faltered() <-chan struct{} { return r.failures }

func (r *renewed) stop() {
	r.cancel()
	<-r.returned
}

var _ claim = (*renewed)(nil)
