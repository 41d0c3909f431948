package election

import (
	"fmt"
	"slices"
)

// step is what can happen next, and what the world is then.
type step struct {
	what func() string
	next world
	// urgent: time does not go on before it has happened, unless clocks have rates of their own.
	urgent bool
	time   bool // it is that time passes
}

// explorer finds what can happen in a world.
type explorer struct {
	rules
	answers *answers
	steps   []step
}

func (x *explorer) add(urgent bool, next world, what string, args ...any) {
	x.steps = append(x.steps, step{func() string { return fmt.Sprintf(what, args...) }, next, urgent, what == "time passes"})
}

// next returns what can happen in a world, until it is called again.
func (x *explorer) next(w *world) []step {
	x.steps = x.steps[:0]
	for i := range processes {
		if w.processes[i].unborn {
			next := *w
			next.processes[i] = processState{presence: absent(none), contests: [ranges]contestState{resting(none), resting(none)}}
			next.look(i)
			x.add(false, next, "p%d starts", i)
		}
		if w.processes[i].dead {
			continue
		}
		x.presenceSteps(w, i)
		for k := range ranges {
			x.contestSteps(w, i, k)
		}
		x.faultSteps(w, i)
	}
	for l, late := range w.late {
		if late.sort != noWrite {
			next := *w
			next.late[l] = lateWrite{}
			x.add(false, next, "late write %d of lease %d is lost", l, late.lease)
			if w.store[late.lease].revision == late.base {
				next.commit(int(late.lease), late.next)
				x.add(false, next, "late write %d of lease %d is committed", l, late.lease)
			}
		}
	}
	urgent := false
	for i := range x.steps {
		x.remember(&x.steps[i].next)
		urgent = urgent || x.steps[i].urgent
	}
	if !urgent || x.unpaced {
		x.timeSteps(w)
	}
	for i := range x.steps {
		x.steps[i].next = x.steps[i].next.normal()
	}
	return x.steps
}

// remember makes each process remember what it does from one look to the next.
func (x *explorer) remember(w *world) {
	for i := range processes {
		p := &w.processes[i]
		if p.dead {
			continue
		}
		if p.presence.phase == working {
			if a := w.judgePresence(&x.rules, x.answers, i); a.cause == nil {
				p.presence.asked = a.trouble.asked
				if a.trouble.heir == "" {
					p.presence.heir = none
				}
			}
		}
		for k := range ranges {
			c := &p.contests[k]
			if c.phase != idle {
				c.winnable, c.trigger, c.after = none, none, none
				continue
			}
			if d := w.decide(&x.rules, x.answers, i, k); d.winnable.since.IsZero() {
				c.winnable, c.trigger, c.after = none, none, none
			} else {
				c.winnable = min(1, int8(theTime.Sub(d.winnable.since).Seconds()))
				c.trigger, c.after = int8(slices.Index(Triggers, d.winnable.first.trigger)), int8(d.winnable.after)
			}
			if c.tried != p.view[k].revision {
				c.tried = none
			}
		}
	}
}

// commit changes a Lease, and tells all who watch.
func (w *world) commit(i int, next leaseState) {
	next.revision = w.store[i].revision + 1
	w.store[i] = next
	for p := range w.processes {
		if q := &w.processes[p]; !q.lags && !q.cut && !q.unborn {
			q.view[i] = viewState{next, 0}
		}
	}
}

// writes adds what can become of a write by a process, on the revision base. done is what follows if it succeeds, and
// failed what follows if it fails, or no answer comes.
func (x *explorer) writes(w *world, i int, sort writeSort, at int, base int8, to leaseState, what string, done, failed func(*processState)) {
	conflict := w.store[at].revision != base
	next := *w
	p := &next.processes[i]
	switch {
	case p.cut:
		failed(p)
	case conflict:
		p.view[at] = viewState{w.store[at], 0} // it reads what is there
		if w.processes[i].view[at].leaseState == w.store[at] {
			p.view[at] = w.processes[i].view[at]
		}
		failed(p)
	default:
		next.commit(at, to)
		p.view[at] = viewState{next.store[at], 0}
		done(p)
	}
	x.add(true, next, "p%d %s", i, what)
	if w.faults == 0 || p.cut || conflict {
		return
	}
	next = *w
	next.faults--
	failed(&next.processes[i])
	for l := range next.late {
		if next.late[l].sort == noWrite {
			next.late[l] = lateWrite{sort, int8(at), base, to}
			x.add(false, next, "p%d %s, and the write is late", i, what)
			break
		}
	}
	next = *w
	next.faults--
	next.commit(at, to)
	failed(&next.processes[i])
	x.add(false, next, "p%d %s, and the answer is lost", i, what)
}

// presenceSteps adds what a process may do about its presence.
func (x *explorer) presenceSteps(w *world, i int) {
	p, at := &w.processes[i], presenceOf(i)
	switch p.presence.phase {
	case working:
		a := w.judgePresence(&x.rules, x.answers, i)
		if a.cause != nil {
			next := *w
			next.processes[i].endPresence()
			x.add(true, next, "the presence of p%d ends: %v", i, a.cause)
			return
		}
		if p.presence.asked && p.presence.heir == none {
			x.heirSteps(w, i)
		}
	case stopping:
		for _, c := range p.contests {
			if c.phase == working || c.phase == stopping {
				return
			}
		}
		if !w.store[at].isHeldBy(i, p.presence.epoch, p.presence.epoch) {
			next := *w
			next.processes[i].presence = absent(none)
			x.add(true, next, "the presence of p%d has ended, and its lease had gone", i)
			return
		}
		x.writes(w, i, frees, at, w.store[at].revision, leaseState{epoch: w.store[at].epoch, holder: none}, "releases its presence",
			func(p *processState) { p.presence = absent(none) },
			func(p *processState) { p.presence = absent(p.presence.epoch) })
	default:
		if p.cut {
			return
		}
		v := p.view[at]
		epoch := v.epoch + 1
		x.writes(w, i, acquires, at, v.revision, leaseState{epoch: epoch, holder: int8(i), present: epoch}, "becomes present",
			func(p *processState) {
				p.presence = presenceState{phase: working, epoch: epoch, failed: none, heir: none, over: none}
			},
			func(*processState) {})
	}
}

// absent is the presence of a process that is not present. over is the epoch that it says is over.
func absent(over int8) presenceState {
	return presenceState{epoch: none, sent: none, failed: none, heir: none, over: over}
}

// endPresence tells all terms to end.
func (p *processState) endPresence() {
	p.presence.phase, p.presence.asked, p.presence.heir = stopping, false, none
	for k := range p.contests {
		switch c := &p.contests[k]; c.phase {
		case working:
			c.phase, c.age = stopping, 0
		case confirmed:
			c.phase, c.base = idle, none
		}
	}
}

// heirSteps adds that another process answers one that is in trouble: it could take one of its ranges.
func (x *explorer) heirSteps(w *world, troubled int) {
	for i := range processes {
		p := &w.processes[i]
		if i == troubled || p.dead || p.cut || w.news(&x.rules, i, troubled).Sign != Alive {
			continue
		}
		for k := range ranges {
			if held := w.store[k]; p.contests[k].phase == idle && held.holder == int8(troubled) && held.present == w.processes[troubled].presence.epoch {
				next := *w
				next.processes[troubled].presence.heir = 0
				x.add(false, next, "p%d says that it could take what p%d has", i, troubled)
				return // whoever answers first
			}
		}
	}
}

// contestSteps adds what a process may do about a range.
func (x *explorer) contestSteps(w *world, i, k int) {
	p := &w.processes[i]
	c, v := p.contests[k], p.view[k]
	next := *w
	n := &next.processes[i].contests[k]
	switch c.phase {
	case idle:
		x.standBySteps(w, i, k)
	case confirmed:
		epoch, by := v.epoch+1, p.presence.epoch
		x.writes(w, i, acquires, k, c.base, leaseState{epoch: epoch, holder: int8(i), present: by}, fmt.Sprintf("takes range %d", k),
			func(p *processState) {
				p.contests[k] = contestState{phase: working, epoch: epoch, present: by, base: none, winnable: none, trigger: none, after: none, tried: none}
			},
			func(p *processState) { p.contests[k] = resting(c.base) })
	case working:
		if !v.isHeldBy(i, c.present, c.epoch) {
			n.phase, n.age = stopping, 0
			x.add(true, next, "the term of p%d in range %d is deposed", i, k)
		} else if w.faults > 0 {
			n.phase, n.age = stopping, 0
			next.faults--
			x.add(false, next, "p%d is asked to step down from range %d", i, k)
		}
		if to := w.assigned(&x.rules, x.answers, i)[k]; v.isHeldBy(i, c.present, c.epoch) && x.gives(i, to) {
			next := *w
			n := &next.processes[i].contests[k]
			n.phase, n.age = stopping, 0
			x.add(false, next, "p%d hands range %d over to %s", i, k, to)
		}
	case stopping:
		n.phase = joined
		x.add(false, next, "the work of p%d in range %d has stopped", i, k)
	case joined:
		held := w.store[k]
		if !held.isHeldBy(i, c.present, c.epoch) {
			*n = resting(none)
			x.add(true, next, "p%d need not release range %d", i, k)
			return
		}
		x.writes(w, i, frees, k, held.revision, leaseState{epoch: held.epoch, holder: none}, fmt.Sprintf("releases range %d", k),
			func(p *processState) { p.contests[k] = resting(none) },
			func(p *processState) { p.contests[k] = resting(none) })
	}
}

// gives reports whether a process hands a range over, as ranges.division.balance does in the end. to should lead it;
// empty: nobody can.
func (x *explorer) gives(i int, to string) bool { return x.balances && to != "" && to != nameOf(i) }

// resting is a process that stands by. tried is the revision on which its last write has failed.
func resting(tried int8) contestState {
	return contestState{epoch: none, present: none, base: none, winnable: none, trigger: none, after: none, tried: tried}
}

// standBySteps adds what a process does that stands by.
func (x *explorer) standBySteps(w *world, i, k int) {
	p := &w.processes[i]
	v := p.view[k]
	d := w.decide(&x.rules, x.answers, i, k)
	switch d.action {
	case clear:
		x.writes(w, i, frees, k, v.revision, leaseState{epoch: v.epoch, holder: none}, fmt.Sprintf("clears range %d", k),
			func(p *processState) { p.contests[k] = resting(none) },
			func(p *processState) { p.contests[k] = resting(v.revision) })
	case win:
		next := *w
		n := &next.processes[i]
		if x.confirm(w, i, v, d.trigger) {
			n.contests[k].phase, n.contests[k].base = confirmed, v.revision
			x.add(true, next, "p%d finds that it can take range %d: %s", i, k, d.reason)
			return
		}
		n.contests[k] = resting(v.revision)
		if !p.cut && n.view[k].leaseState != w.store[k] {
			n.view[k] = viewState{w.store[k], 0}
		}
		x.add(true, next, "p%d finds that it cannot take range %d after all: %s", i, k, d.reason)
	}
}

// confirm reports whether a process may take the lease, as Elector.confirm does.
func (x *explorer) confirm(w *world, i int, v viewState, trigger Trigger) bool {
	p := &w.processes[i]
	if !x.confirms || v.holder == none || trigger != TriggerExpiry && trigger != TriggerOwnerDeleted {
		return true
	}
	at := presenceOf(int(v.holder))
	read := w.store[at]
	switch {
	case p.cut:
		return false
	case !read.isHeldBy(int(v.holder), v.present, v.present):
		return true
	default:
		return trigger == TriggerExpiry && read.revision == p.view[at].revision
	}
}

// faultSteps adds what may go wrong with a process, and be well again.
func (x *explorer) faultSteps(w *world, i int) {
	p := &w.processes[i]
	fault := func(change func(*processState), what string, args ...any) {
		next := *w
		next.faults--
		change(&next.processes[i])
		x.add(false, next, what, args...)
	}
	if p.cut || p.lags {
		next := *w
		next.see(i)
		x.add(false, next, "p%d reaches the store again", i)
	}
	for q, sign := range p.hears {
		if sign != NoSign {
			next := *w
			next.processes[i].hears[q] = NoSign
			x.add(false, next, "p%d hears p%d again", i, q)
		}
	}
	if w.faults == 0 {
		return
	}
	fault(func(p *processState) {
		*p = processState{dead: true, presence: absent(none), contests: [ranges]contestState{resting(none), resting(none)}}
	}, "p%d dies", i)
	if !p.cut {
		fault(func(p *processState) { p.cut = true }, "p%d is cut off from the store", i)
	}
	if !p.cut && !p.lags {
		fault(func(p *processState) { p.lags = true }, "the watches of p%d lag", i)
	}
	for q := range processes {
		if x.mistaken && q != i && !w.processes[q].dead && p.hears[q] == NoSign {
			fault(func(p *processState) { p.hears[q] = Dead }, "p%d takes p%d to be dead", i, q)
			fault(func(p *processState) { p.hears[q] = Silent }, "p%d does not hear p%d", i, q)
		}
	}
}

// look makes a process see all that is there for the first time.
func (w *world) look(i int) {
	for at, l := range w.store {
		w.processes[i].view[at] = viewState{l, 0}
	}
}

// see makes a process see all that is there.
func (w *world) see(i int) {
	p := &w.processes[i]
	p.cut, p.lags = false, false
	for at := range p.view {
		if p.view[at].leaseState != w.store[at] {
			p.view[at] = viewState{w.store[at], 0}
		}
	}
}

// timeSteps adds that time passes: each process that is present renews.
func (x *explorer) timeSteps(w *world) {
	next := *w
	for i := range processes {
		next.age(i, x.unpaced)
	}
	before := next
	for i := range processes {
		next.renew(i)
	}
	x.remember(&next)
	x.add(false, next, "time passes")
	if w.faults == 0 {
		return
	}
	for i := range processes {
		if p := &before.processes[i]; p.dead || p.cut || p.presence.phase == idle {
			continue
		}
		at := presenceOf(i)
		for _, lost := range []bool{true, false} {
			next := before
			next.faults--
			for j := range processes {
				if j != i {
					next.renew(j)
				}
			}
			next.processes[i].presence.failed = 0
			what := "the answer to a renewal of p%d is lost"
			if lost {
				next.commit(at, next.store[at])
			} else {
				what = "a renewal of p%d is late"
				for l := range next.late {
					if next.late[l].sort == noWrite {
						next.late[l] = lateWrite{renews, int8(at), next.store[at].revision, next.store[at]}
						break
					}
				}
			}
			x.remember(&next)
			x.add(false, next, "time passes, and "+what, i)
		}
		if x.unpaced { // its clock stands still meanwhile
			next := *w
			next.faults--
			for j := range processes {
				if j != i {
					next.age(j, true)
					next.renew(j)
				}
			}
			x.remember(&next)
			x.add(false, next, "time passes, but not for p%d", i)
		}
	}
}

// age makes a process older. If its work may be late, it is not joined for that.
func (w *world) age(i int, late bool) {
	p := &w.processes[i]
	if p.dead {
		return
	}
	older := func(age *int8) {
		if *age != none {
			*age = min(*age+1, oldest)
		}
	}
	for at := range p.view {
		older(&p.view[at].age)
	}
	older(&p.presence.sent)
	older(&p.presence.failed)
	older(&p.presence.heir)
	for k := range p.contests {
		c := &p.contests[k]
		older(&c.winnable)
		c.tried = none
		if c.phase == stopping && !late {
			c.phase = joined // the drain timeout is over
		}
	}
}

// renew renews the presence of a process.
func (w *world) renew(i int) {
	p, at := &w.processes[i], presenceOf(i)
	if p.dead || p.presence.phase == idle {
		return
	}
	if p.cut {
		p.presence.failed = 0
		return
	}
	if !w.store[at].isHeldBy(i, p.presence.epoch, p.presence.epoch) {
		return
	}
	w.commit(at, w.store[at])
	p.view[at] = viewState{w.store[at], 0}
	p.presence.sent, p.presence.failed = 0, none
}
