package election

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// lifetime is what client-go takes for the duration of a lease for life: it knows none that do not expire, and would end a
// term whose process was paused for longer than the renew deadline.
const lifetime = math.MaxInt32 * time.Second

// claim is what a term stands on: a lease that is held, or nothing but that nobody else holds it.
type claim interface {
	// term is the term that the claim is for.
	term() Term
	// judge returns why the term must end in view of what is seen of the Lease, nil if it need not; again is when it
	// must be asked again, zero if only news can change its mind.
	judge(seen lease.Observation, now time.Time) (again time.Time, cause error)
	// renewed is how the renewals go; zero, if nothing is written.
	renewed() renewals
	// faltered brings word when an attempt to renew has failed.
	faltered() <-chan struct{}
	// lost is closed when the claim finds by itself that the term must end; judge then says why.
	lost() <-chan struct{}
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

// judge ends the term when the Lease shows another, and when what is left of the lease is needed for the drain: with
// client-go alone, the time it tries to renew and the drain together may be longer than the lease.
func (e *elected) judge(seen lease.Observation, now time.Time) (time.Time, error) {
	if err := e.lock.check(seen.Lease); err != nil {
		return time.Time{}, e.lock.end(err)
	}
	if _, err := e.lock.held(); err != nil {
		return time.Time{}, err
	}
	if e.lock.forLife() {
		return time.Time{}, nil
	}
	if preferred := seen.Preferred(); preferred != "" && e.lock.named {
		return time.Time{}, because(StepDown, "%w", &request{reason: "candidate " + preferred + " is preferred"})
	}
	sent := e.lock.renewed().sent
	due := sent.Add(e.cfg.usable())
	if !now.Before(due) {
		return time.Time{}, because(RenewDeadline, "the last renewal was sent %v ago", now.Sub(sent))
	}
	return due, nil
}

func (e *elected) renewed() renewals { return e.lock.renewed() }

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
type unelected struct {
	fallback time.Duration
}

func (u unelected) term() Term { return Term{} }

func (u unelected) judge(seen lease.Observation, now time.Time) (time.Time, error) {
	if seen.Holder() == "" || !seen.HeldForLife() && !now.Before(seen.Expiry(u.fallback)) {
		return time.Time{}, nil
	}
	return time.Time{}, because(Deposed, "the lease is held by %q in epoch %d, and this process is no candidate",
		seen.Holder(), seen.Epoch())
}

func (u unelected) renewed() renewals { return renewals{} }

func (u unelected) faltered() <-chan struct{} { return nil }

func (u unelected) lost() <-chan struct{} { return nil }

func (u unelected) stop() {}

func (u unelected) release(context.Context, error) error { return nil }

var (
	_ claim = (*elected)(nil)
	_ claim = unelected{}
)
