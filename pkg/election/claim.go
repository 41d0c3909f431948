package election

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"
)

// lifetime is what client-go takes for the duration of a lease for life: it knows none that do not expire, and would end a
// term whose process was paused for longer than the renew deadline.
const lifetime = math.MaxInt32 * time.Second

// claim is what a term stands on: a lease that is held, or nothing but that nobody else holds it.
type claim interface {
	// term is the term that the claim is for.
	term() Term
	// grounds are what the claim knows of itself now.
	grounds() grounds
	// faltered brings word when an attempt to renew has failed.
	faltered() <-chan struct{}
	// lost is closed when the claim finds by itself that the term must end; its grounds then say why.
	lost() <-chan struct{}
	// end tells the claim why the term ends: if it is lost, nothing more is written.
	end(cause error)
	// stop ends renewing and returns when that has ended.
	stop()
	// release gives up what stop has left, for cause. It bounds itself and does not heed ctx's end.
	release(ctx context.Context, cause error) error
}

// elected is a term's claim on the lease: an entry of RunOrDie that has acquired.
type elected struct {
	cfg      Config
	lock     *lock
	cancel   context.CancelFunc
	returned chan struct{} // closed when RunOrDie has returned
}

// enter makes one attempt to acquire, by an entry of RunOrDie, and waits for its outcome, which takes at most the
// request timeout. On error nothing is left running.
//
// The entry does not end with ctx: renewing must go on until the term is drained. client-go's own log lines are left
// out; they would tell of each term twice and of each race that is lost as an error.
func enter(ctx context.Context, cfg Config, l *lock) (*elected, error) {
	ctx, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logr.Discard()))
	l.giveUp = cancel
	e := &elected{cfg: cfg, lock: l, cancel: cancel, returned: make(chan struct{})}
	leaseDuration, renewDeadline := cfg.LeaseDuration, cfg.RenewDeadline
	if l.forLife() {
		leaseDuration, renewDeadline = lifetime, lifetime-time.Second
	}
	go func() {
		defer close(e.returned)
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock:          l,
			Name:          cfg.Name,
			LeaseDuration: leaseDuration,
			RenewDeadline: renewDeadline,
			RetryPeriod:   cfg.RetryPeriod,
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
		_ = l.end(because(RenewDeadline, "could not renew within %v", renewDeadline))
	}()
	select {
	case <-l.acquired:
		return e, nil
	case <-l.over:
		e.stop()
		_, err := l.held()
		return nil, err
	}
}

func (e *elected) term() Term {
	return Term{token: e.lock.token(), failedParts: strings.Join(e.lock.basis.Predecessor().FailedParts, partsSeparator), takeover: e.lock.takeover}
}

func (e *elected) grounds() grounds {
	_, lost := e.lock.held()
	g := grounds{lost: lost, pin: e.lock.pin, named: e.lock.named}
	if !e.lock.forLife() {
		g.renewals = e.lock.renewed()
	}
	return g
}

func (e *elected) end(cause error) {
	if errors.Is(cause, Deposed) {
		_ = e.lock.end(cause)
	}
}

func (e *elected) faltered() <-chan struct{} { return e.lock.faltered }

func (e *elected) lost() <-chan struct{} { return e.lock.over }

func (e *elected) stop() {
	e.cancel()
	<-e.returned
}

func (e *elected) release(ctx context.Context, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.cfg.releaseTimeout())
	defer cancel()
	how := endingOf(cause)
	highest, none := e.cfg.standbys()
	how.standbyPriority, how.alone = highest, none && causeOf(cause) == Shutdown
	return e.lock.release(ctx, how)
}

// unelected is the claim of a process that leads without election: none but that nobody holds the lease.
type unelected struct{}

func (u unelected) term() Term { return Term{} }

func (u unelected) grounds() grounds { return grounds{} }

func (u unelected) end(error) {}

func (u unelected) faltered() <-chan struct{} { return nil }

func (u unelected) lost() <-chan struct{} { return nil }

func (u unelected) stop() {}

func (u unelected) release(context.Context, error) error { return nil }

var (
	_ claim = (*elected)(nil)
	_ claim = unelected{}
)
