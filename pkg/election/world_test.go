package election

import (
	"fmt"
	"math/bits"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// A world is a store with the Leases of two ranges and of three presences, and the three processes that share the
// ranges. It is a value: two worlds that differ in nothing that matters are equal. Time is in retry periods, and only
// ages are kept, on each process's own clock.
type world struct {
	store     [leases]leaseState
	processes [processes]processState
	late      [2]lateWrite // writes that their senders have given up, and that may still be committed
	faults    int8         // how many more may happen
}

const (
	processes, ranges, leases = 3, 2, ranges + processes

	none int8 = -1
	// oldest is the highest age that is kept: nothing happens later than that.
	oldest = 5
)

// presenceOf is the index of a process's presence among the leases.
func presenceOf(p int) int { return ranges + p }

// leaseState is what a Lease says. A range is held by a process, in an epoch of its presence. A
// presence is held by its own process or by nobody.
type leaseState struct{ revision, epoch, holder, present int8 }

// isHeldBy reports whether a Lease shows that term.
func (l leaseState) isHeldBy(p int, present, epoch int8) bool {
	return l.holder == int8(p) && l.present == present && l.epoch == epoch
}

type lateWrite struct {
	sort  writeSort
	lease int8
	base  int8 // the revision on which it is committed
	next  leaseState
}

// processState is what a process does and knows.
type processState struct {
	dead, unborn bool // it has died, or has not started yet; it has not started yet
	cut, lags    bool // it cannot reach the store; its watches tell nothing new
	view         [leases]viewState
	hears        [processes]Sign // what the probe says, if that is not so
	presence     presenceState
	contests     [ranges]contestState
}

type viewState struct {
	leaseState
	age int8
}

// presenceState is the presence of a process as it knows it itself.
type presenceState struct {
	phase  phase
	epoch  int8
	sent   int8 // since the last renewal that succeeded
	failed int8 // since the last one that failed after that; none: none has
	asked  bool // it has asked who could write
	heir   int8 // since somebody has answered
	over   int8 // the epoch of the term of which it has said that it is over
}

// contestState is what a process does about a range.
type contestState struct {
	phase          phase
	epoch, present int8 // of its term
	base           int8 // the revision on which the lease is acquired
	age            int8 // since it ended
	winnable       int8 // for how long it could be won; none: it cannot
	trigger        int8 // its place among Triggers
	after          int8 // the highest epoch seen then
	tried          int8 // the revision on which a write failed in this retry period
}

// phase is what a process does about a lease.
type phase int8

const (
	idle      phase = iota
	confirmed       // the presence of the holder was read, and the lease is about to be acquired
	working
	stopping // its term is over, and its work may not have stopped
	joined   // its work has stopped, and the lease is to be released
)

// writeSort says what a write is for.
type writeSort int8

const (
	noWrite writeSort = iota
	acquires
	frees
	renews
)

// theTime is what every clock shows.
var theTime = noon.Add(time.Hour)

func ago(age int8) time.Time {
	if age == none {
		return time.Time{}
	}
	return theTime.Add(-time.Duration(age) * time.Second)
}

// rules are what all processes of a world have in common.
type rules struct {
	cfg Config
	// mistaken: the probe may say of a process that it is dead or silent which is not.
	mistaken bool
	// unpaced: clocks have rates of their own, processes pause, and work is late. Only a fence makes up for that:
	// what two do in one range is refused of one.
	unpaced bool
	// joins: the third process has not started in the beginning. When another one has died before, that is a
	// restart: a process that starts again is another one, with another presence.
	joins bool
	decisions
}

// decisions are what is explored. Mutants replace them.
type decisions struct {
	plan   func(Config, situation) decision
	assess func(Config, tenure) assessment
	assign func(holders []string, replicas map[string]int) []string
	// confirms: the presence of the holder is read before its lease is taken because that has expired or is over.
	confirms bool
	// balances: who leads what another one should lead hands it over.
	balances bool
}

func nameOf(p int) string { return [processes]string{"p0", "p1", "p2"}[p] }

// identityOf returns the holder identity of a process in an epoch of its presence.
func identityOf(holder, present int8) string {
	if holder == none {
		return ""
	}
	return holderIdentities[holder][present+1]
}

// holderIdentities has them.
var holderIdentities = func() (all [processes][128]string) {
	for p := range all {
		for e := range all[p] {
			all[p][e] = fmt.Sprintf("p%d-%d", p, e-1)
		}
	}
	return all
}()

// shape is what matters of a Lease to the decisions.
type shape struct {
	lease int
	leaseState
}

// answers are what was worked out before.
type answers struct {
	observations map[shape]lease.Observation
	decisions    map[question]decision
	assigned     map[assignable][]string
}

// assignable is what an assignment depends on.
type assignable struct {
	holders [ranges]int8
	well    [processes]bool
}

// question is what a standby's decision depends on.
type question struct {
	process, lease   int
	seen, kept       viewState
	contest          contestState
	present, orphans bool
	said             bool
	sign             Sign
	assigned         string
}

func newAnswers() *answers {
	return &answers{map[shape]lease.Observation{}, map[question]decision{}, map[assignable][]string{}}
}

func (r *rules) observe(answers *answers, i int, v viewState) lease.Observation {
	s := shape{i, v.leaseState}
	o, ok := answers.observations[s]
	if !ok {
		o = lease.Read(&coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []coordinationv1.Lease{*r.leaseOf(i, v.leaseState)}})
		o.Highest, o.Before = int64(v.epoch), int64(v.epoch)-1
		answers.observations[s] = o
	}
	o.Since, o.TermSince = ago(v.age), ago(v.age)
	return o
}

// leaseOf returns the Lease that is in that state.
func (r *rules) leaseOf(i int, s leaseState) *coordinationv1.Lease {
	holder, of := identityOf(s.holder, s.present), int(s.holder)
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(strconv.Itoa(i)), ResourceVersion: strconv.Itoa(int(s.revision) + 1)},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseTransitions: ptr.To(int32(s.epoch) + 1)},
	}
	said := lease.Presence{Holder: holder, Fencing: lease.Unfenced, ElectionMode: lease.ByPresence}
	if r.cfg.Fenced {
		said.Fencing = lease.Fenced
	}
	if r.cfg.SucceedUnfenced {
		said.Succession = lease.OnRefusal
	}
	switch {
	case i >= ranges:
		said.ElectionMode = lease.Renewed
		l.Spec.LeaseDurationSeconds = ptr.To(int32(r.cfg.LeaseDuration / time.Second))
	case s.holder != none:
		said.Replica, said.Instance = nameOf(of), nameOf(of)
		said.Owner, said.Life = types.UID(strconv.Itoa(presenceOf(of))), nameOf(of)
	}
	said.WriteTo(l)
	return l
}

// news returns what the probe tells process p of q.
func (w *world) news(r *rules, p, q int) News {
	of := &w.processes[q]
	n := News{Sign: Alive, Since: theTime}
	switch {
	case r.cfg.Detector == nil:
		return News{Since: theTime}
	case w.processes[p].hears[q] != NoSign:
		n.Sign = w.processes[p].hears[q]
	case of.dead:
		n.Sign = Dead
	}
	if of.presence.over != none && n.Sign == Alive {
		n.Said = Statement{Holder: identityOf(int8(q), of.presence.over), Condition: Over}
	}
	return n
}

// decide returns what a process would do about a range in which it stands by.
func (w *world) decide(r *rules, answers *answers, i, k int) decision {
	p := &w.processes[i]
	ask := question{
		process: i, lease: k, seen: p.view[k], contest: p.contests[k], present: p.presence.phase == working,
		assigned: w.assigned(r, answers, i)[k],
	}
	if ask.contest.tried != ask.seen.revision {
		ask.contest.tried = none
	}
	if h := int(ask.seen.holder); ask.seen.holder != none {
		ask.kept = p.view[presenceOf(h)]
		ask.orphans = h != i && !ask.kept.isHeldBy(h, ask.seen.present, ask.seen.present)
		n := w.news(r, i, h)
		ask.sign, ask.said = n.Sign, n.Said.Holder == identityOf(ask.seen.holder, ask.seen.present)
	}
	d, ok := answers.decisions[ask]
	if !ok {
		d = r.answer(answers, ask)
		answers.decisions[ask] = d
	}
	return d
}

// answer decides.
func (r *rules) answer(answers *answers, q question) decision {
	c := q.contest
	s := situation{now: theTime, seen: r.observe(answers, q.lease, q.seen), unready: !q.present, assigned: q.assigned}
	if c.winnable != none {
		s.memory.winnable = winnable{since: ago(c.winnable), first: verdict{action: win, trigger: Triggers[c.trigger]}, decided: ago(c.winnable), after: int64(c.after)}
	}
	if h := int(q.seen.holder); q.seen.holder != none {
		of := r.observe(answers, presenceOf(h), q.kept)
		of.Revision = strconv.Itoa(int(q.kept.revision) + 1)
		s.seen = s.seen.KeptBy(of, theTime)
		s.holder = knowledge{
			mine: h == q.process, news: News{Sign: q.sign, Since: theTime}, fenced: r.cfg.Fenced, risked: r.cfg.SucceedUnfenced,
			suspect: r.cfg.EffectiveDetection() == DetectSuspect, orphaned: q.orphans,
		}
		if q.said {
			s.holder.news.Said = Statement{Holder: s.seen.Holder(), Condition: Over}
		}
	}
	if c.tried != none {
		s.pace.tried, s.pace.retryAt = s.seen.Revision, theTime.Add(time.Nanosecond)
	}
	cfg := r.cfg
	cfg.Instance, cfg.Replica = nameOf(q.process), nameOf(q.process)
	return r.plan(cfg, s)
}

// assigned returns who should lead each range as a process sees it.
func (w *world) assigned(r *rules, answers *answers, i int) []string {
	p := &w.processes[i]
	var a assignable
	for q := range processes {
		v, n := p.view[presenceOf(q)], w.news(r, i, q)
		a.well[q] = v.holder != none && time.Duration(v.age)*time.Second < r.cfg.LeaseDuration &&
			n.Sign != Dead && n.Sign != Silent && (n.Said.Holder == "" || n.Said.Holder != identityOf(int8(q), v.present))
	}
	for k := range ranges {
		a.holders[k] = none
		if h := p.view[k].holder; h != none && a.well[h] && p.view[presenceOf(int(h))].present == p.view[k].present {
			a.holders[k] = h
		}
	}
	assigned, ok := answers.assigned[a]
	if !ok {
		assigned = r.share(a)
		answers.assigned[a] = assigned
	}
	return assigned
}

func (r *rules) share(a assignable) []string {
	holders, replicas := make([]string, ranges), map[string]int{}
	for q, well := range a.well {
		if well {
			replicas[nameOf(q)] = 1
		}
	}
	for k, h := range a.holders {
		if h != none {
			holders[k] = nameOf(int(h))
		}
	}
	if assigned := r.assign(holders, replicas); assigned != nil {
		return assigned
	}
	return holders
}

// judgePresence returns how the presence of a process is going.
func (w *world) judgePresence(r *rules, answers *answers, i int) assessment {
	p := &w.processes[i].presence
	at := presenceOf(i)
	t := tenure{now: theTime, seen: r.observe(answers, at, w.processes[i].view[at])}
	t.grounds.pin = lease.Pin{UID: types.UID(strconv.Itoa(at)), Holder: identityOf(int8(i), p.epoch), Epoch: int64(p.epoch) + 1}
	t.grounds.renewals = renewals{sent: ago(p.sent), failed: ago(p.failed)}
	t.trouble = trouble{asked: p.asked}
	if p.heir != none {
		t.trouble.heir, t.trouble.since = "heir", ago(p.heir)
	}
	cfg := r.cfg
	cfg.Mode = Renewed{}
	return r.assess(cfg, t)
}

// normal returns the same world with the smallest numbers: only which revisions and epochs are equal, or later than
// others, matters.
func (w world) normal() world {
	if w.late[0].sort < w.late[1].sort || w.late[0].sort == w.late[1].sort && w.late[0].base < w.late[1].base {
		w.late[0], w.late[1] = w.late[1], w.late[0]
	}
	for i := range leases {
		w.renumber(i, (*world).revisions)
		w.renumber(i, (*world).epochs)
	}
	return w
}

// renumber makes the numbers of a Lease as small as they can be.
func (w *world) renumber(i int, numbers func(w *world, i int, take func(*int8))) {
	var all uint64
	numbers(w, i, func(n *int8) {
		if *n != none {
			all |= 1 << *n
		}
	})
	numbers(w, i, func(n *int8) {
		if *n != none {
			*n = int8(bits.OnesCount64(all & (1<<*n - 1)))
		}
	})
}

// revisions calls take for each revision of a Lease.
func (w *world) revisions(i int, take func(*int8)) {
	take(&w.store[i].revision)
	for p := range w.processes {
		take(&w.processes[p].view[i].revision)
		if i < ranges {
			take(&w.processes[p].contests[i].base)
			take(&w.processes[p].contests[i].tried)
		}
	}
	for l := range w.late {
		if w.late[l].sort != noWrite && int(w.late[l].lease) == i {
			take(&w.late[l].base)
		}
	}
}

// epochs calls take for each epoch of a Lease.
func (w *world) epochs(i int, take func(*int8)) {
	take(&w.store[i].epoch)
	for p := range w.processes {
		take(&w.processes[p].view[i].epoch)
		if i < ranges {
			take(&w.processes[p].contests[i].epoch)
			take(&w.processes[p].contests[i].after)
		}
	}
	for l := range w.late {
		if w.late[l].sort != noWrite && int(w.late[l].lease) == i {
			take(&w.late[l].next.epoch)
		}
	}
	if i < ranges {
		return
	}
	q := i - ranges
	take(&w.processes[q].presence.epoch)
	take(&w.processes[q].presence.over)
	for k := range ranges {
		take(&w.processes[q].contests[k].present)
	}
	shown := func(l *leaseState) {
		if l.holder == int8(q) {
			take(&l.present)
		}
	}
	for j := range leases {
		shown(&w.store[j])
		for p := range w.processes {
			shown(&w.processes[p].view[j].leaseState)
		}
	}
	for l := range w.late {
		if w.late[l].sort != noWrite {
			shown(&w.late[l].next)
		}
	}
}
