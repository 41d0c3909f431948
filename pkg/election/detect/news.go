package detect

import (
	"context"
	"errors"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election"
)

// classify returns the state that describes why contact could not be made.
func classify(err error) state {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return refused
	case errors.Is(err, errUntrusted):
		return untrusted
	case errors.Is(err, errUnauthorized):
		return unauthorized
	default:
		return unreachable
	}
}

func (f *following) hasAnswered() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.answered
}

// become sets the state, and reports news if it has changed.
func (f *following) become(s state, news election.News) {
	if f.state != s {
		f.state = s
		f.showState(s)
	}
	if news != f.news {
		f.news = news
		f.follower.Report(news)
	}
}

func (f *following) becomeConnecting() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.become(connecting, election.News{})
}

// becomeAlive: a beat has come.
func (f *following) becomeAlive(s election.Statement) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if silence := f.quiet.beat(now); f.answered {
		f.d.patience.hear(now, silence-f.d.cfg.Interval)
	}
	f.answered, f.told, f.last = true, alive, now
	f.become(alive, election.News{Sign: election.Alive, Said: s})
	if s.Condition == election.Troubled {
		select {
		case f.asked <- s.Holder:
		default:
		}
	}
}

// pulse finds the leader silent if no beat has come for as long as it may be late.
func (f *following) pulse(ctx context.Context, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	silence, allowed := f.quiet.tick(now), f.d.patience.allowed(now, f.d.cfg.silence())
	showPatience(f.d.cfg.Name, allowed)
	if f.news.Sign != election.Alive || silence < allowed {
		return
	}
	klog.FromContext(ctx).Info("The leader's process is silent", "address", f.leader.Address, "holder", f.news.Said.Holder,
		"since", now.Sub(f.last).Round(time.Millisecond), "allowed", allowed)
	f.become(silent, election.News{Sign: election.Silent, Since: f.last, Said: f.news.Said})
	f.abandon() // dial again: the stream may have broken without a sign
}

// becomeBroken: an attempt has ended with err. made: it had made contact. lost is when contact last broke off.
func (f *following) becomeBroken(ctx context.Context, err error, made bool, lost time.Time) {
	if ctx.Err() != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	log := klog.FromContext(ctx).WithValues("address", f.leader.Address)
	if made {
		log.V(2).Info("Lost contact with the leader's process", "holder", f.news.Said.Holder, "err", err)
		if f.state == alive {
			f.become(connecting, f.news)
		}
		return
	}
	why := classify(err)
	switch {
	case why == refused && f.answered:
		if f.news.Sign == election.Dead {
			return
		}
		log.Info("The leader's process is gone: contact broke off, and its address refuses connections", "holder", f.news.Said.Holder, "after", time.Since(lost).Round(100*time.Microsecond))
		f.become(dead, election.News{Sign: election.Dead, Since: lost, Said: f.news.Said})
		return
	case f.answered:
		return // nothing changes: the leader counts as alive until it is silent
	}
	failures.Inc(f.d.cfg.Name, string(why))
	if f.told != why {
		f.told = why
		log.Error(err, "No contact with the leader's process: if it crashes, its lease has to expire. "+
			"Check its --advertise-address and --probe-port, and the network between", "reason", why)
	}
	f.become(why, election.News{})
}

// becomeGone: the leader's witness is gone. If the process lives after all, its next beat says so.
func (f *following) becomeGone(ctx context.Context, address string, lost time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state != alive {
		return
	}
	klog.FromContext(ctx).Info("The leader's process is gone: the second port of its probe broke off, and refuses connections", "address", address,
		"holder", f.news.Said.Holder, "after", time.Since(lost).Round(100*time.Microsecond))
	f.become(dead, election.News{Sign: election.Dead, Since: lost, Said: f.news.Said})
}
