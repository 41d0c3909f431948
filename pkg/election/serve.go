package election

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// campaign makes one attempt to get a claim, on the revision that the standby has judged.
func (r *run) campaign(ctx context.Context, d decision) (claim, error) {
	err := r.confirm(ctx, d)
	var c claim
	if err == nil {
		c, err = r.mode.enter(ctx, r.attempt(ctx, d))
	}
	if err != nil {
		r.complain(ctx, err, "Campaign lost: trying again while the lease can be won")
		r.writeFailed(d.seen)
		return nil, err
	}
	r.writeSucceeded()
	r.tellOfUnproved(ctx, d)
	if ctx.Err() != nil {
		cause := because(Shutdown, "%w", context.Cause(ctx))
		c.stop()
		r.mode.nominate(stepBack)
		r.mode.awaitWithdrawn()
		r.release(ctx, c, cause)
		return nil, cause
	}
	return c, nil
}

// attempt returns the Lease as this process will hold it.
func (r *run) attempt(ctx context.Context, d decision) *heldLease {
	identity := r.candidate
	if identity == "" && r.presence == nil { // what is held by presence is held under its identity
		identity = r.identities.next()
	}
	before := d.seen.Predecessor()
	presence := r.self(identity)
	presence.LastStepDown = before.LastStepDown // kept until the next step down
	presence.PresumedDead = presumedDead(before, d.trigger)
	presence.Suspicions = nextSuspicions(r.suspicions(before), d.takeover.Decided.Sub(d.seen.TermSince), d.trigger)
	return &heldLease{
		cfg: r.cfg, api: r.api, view: r.view, logger: klog.FromContext(ctx),
		identity: identity, basis: d.seen, presence: presence, takeover: d.takeover,
		over: make(chan struct{}),
	}
}

// self returns what this process says of itself on the Lease, as the holder of that identity.
func (e *Elector) self(identity string) lease.Presence {
	p := lease.Presence{
		Holder: identity, Replica: e.cfg.Replica, Instance: e.cfg.Instance, BootID: e.processLock.bootID, Fencing: lease.Unfenced, ElectionMode: e.cfg.Mode.Name(),
		Priority: e.cfg.Priority, URL: e.cfg.URL,
	}
	if e.cfg.presence {
		p.Election, p.Weight, p.Ranges = e.cfg.Election, e.cfg.Weight, e.cfg.Ranges
	}
	if e.cfg.Fenced {
		p.Fencing = lease.Fenced
	}
	if e.cfg.SucceedUnfenced {
		p.Succession = lease.OnRefusal
	}
	if e.cfg.Detector != nil {
		p.Contact = lease.Contact(e.cfg.Detector.Contact())
	}
	if file, held := e.processLock.mark(); held {
		p.Process, p.File = e.processLock.process, file
	}
	return p
}

// serve runs one term. It returns when nothing of the term is left. Its error is the one that Run must return.
func (r *run) serve(ctx context.Context, c claim, reason string, lead LeadFunc) error {
	term := c.term()
	termCtx := klog.NewContext(ctx, klog.FromContext(ctx).WithValues("epoch", term.Epoch()))
	began := time.Now()
	w, begin := prepare(termCtx, lead, term)
	r.setCurrent(term, w) // first: whoever sees that this process leads may ask the term to end
	r.becomeLeading(termCtx, term, reason)
	begin()
	r.say(term, Well)

	cause := r.untilOver(ctx, c, w)
	r.setCurrent(Term{}, nil)
	ended := time.Now()
	w.end(cause)
	r.becomeDraining(termCtx, term, cause)
	r.mode.nominate(stepBack)
	if drain := r.cfg.EffectiveDrainTimeout(); !w.join(drain) {
		c.stop()
		r.becomeQuarantined(termCtx, drain)
		r.joinLate(termCtx, w, c, cause)
		r.becomeDrained(termCtx, ended, ctx.Err() != nil || w.exit() != nil)
	}
	if b, ok := c.(sharedClaim); ok {
		b.joined()
	}
	if err := w.leftover(cause); err != nil {
		klog.FromContext(termCtx).Error(err, "The work of the term has failed while it stopped: look at what it says, the next term begins all the same")
	}
	r.countDrain(time.Since(ended))
	// tell followers now: the release may not arrive, and a renewal may still be under way
	if causeOf(cause) == RenewDeadline {
		r.say(term, Over)
	}
	c.stop()
	r.past.last.holder, r.past.last.epoch, r.past.last.ending = term.Token().Holder, term.Epoch(), endingOf(cause)
	r.past.last.lasted = ended.Sub(began)
	r.mode.awaitWithdrawn()
	r.release(termCtx, c, cause)
	r.pace.termEnded(cause, ended.Sub(began), time.Now())
	r.becomeStandby()
	return w.exit()
}

func (e *Elector) setCurrent(term Term, w *work) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.current.term, e.current.work = term, w
	if holder := term.Token().Holder; holder != "" {
		e.current.holder = holder
	}
}

// release gives up a claim that was stopped.
func (r *run) release(ctx context.Context, c claim, cause error) {
	if err := c.release(ctx, cause); err != nil {
		r.past.unsure = true
		r.say(c.term(), Over)
		klog.FromContext(ctx).Error(err, "The lease may not be released: this process clears the holder if it still sees itself on the Lease")
	}
}

// untilOver waits for the first cause that ends the term, and returns it. Each time that something changes it assesses
// the term anew, and does what follows.
func (e *Elector) untilOver(ctx context.Context, c claim, w *work) error {
	var confirmations <-chan Confirmation
	if e.cfg.Detector != nil && e.presence == nil {
		confirmations = e.cfg.Detector.Confirmations()
	}
	var t trouble
	for {
		seen, changed := e.view.Latest()
		seen = e.withPresence(seen, time.Now())
		a := assess(e.cfg, e.tenure(c, seen, t))
		t = a.trouble
		if a.cause != nil {
			c.end(a.cause)
			return a.cause
		}
		if a.say == Troubled {
			for len(confirmations) > 0 { // answers to an earlier question
				<-confirmations
			}
		}
		if a.say != "" {
			e.say(c.term(), a.say)
		}
		timer := newAlarm(a.again)
		var cause error
		select {
		case <-ctx.Done():
			cause = because(Shutdown, "%w", context.Cause(ctx))
		case <-w.returned:
			cause = causeOfReturn(w.err)
		case <-w.failed:
			cause = causeOfReturn(w.fault)
		case <-c.loss():
		case said := <-confirmations:
			t = t.hear(said, c.term().Token().Holder, time.Now())
		case <-c.faltered():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
		if cause != nil {
			return cause
		}
	}
}

// tenure returns what a leader knows now.
func (e *Elector) tenure(c claim, seen lease.Observation, t trouble) tenure {
	now := tenure{now: time.Now(), seen: seen, grounds: c.grounds(), trouble: t}
	if seen.Wish().Holder != "" {
		now.standbys = e.cfg.followers()
	}
	return now
}

// say tells the followers of this process how its term is going. A Presence says it for all terms that it keeps.
func (e *Elector) say(term Term, condition Condition) {
	if holder := term.Token().Holder; holder != "" && e.cfg.Detector != nil && e.presence == nil {
		e.cfg.Detector.Say(Statement{Holder: holder, Condition: condition})
	}
}
