package election

import (
	"cmp"
	"flag"
	"hash/maphash"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/election/internal/share"
)

// settled is a world in which all that have started are present, and the first two processes lead a range each.
func settled(r rules, faults int8) world {
	w := world{faults: faults}
	for i := range ranges {
		w.store[i] = leaseState{revision: 0, epoch: 0, holder: int8(i), present: 0}
	}
	for i := range processes {
		w.store[presenceOf(i)] = leaseState{holder: int8(i)}
		p := &w.processes[i]
		p.presence = presenceState{phase: working, failed: none, heir: none, over: none}
		for k := range ranges {
			p.contests[k] = resting(none)
			if k == i {
				p.contests[k].phase, p.contests[k].epoch, p.contests[k].present = working, 0, 0
			}
		}
	}
	if r.joins {
		last := processes - 1
		w.store[presenceOf(last)] = leaseState{epoch: none, holder: none}
		w.processes[last] = processState{dead: true, unborn: true, presence: absent(none), contests: w.processes[last].contests}
	}
	for i := range processes {
		for at := range leases {
			if !w.processes[i].dead {
				w.processes[i].view[at].leaseState = w.store[at]
			}
		}
	}
	return w.normal()
}

// exploring returns the rules of an election with short times.
func exploring(change func(*rules)) rules {
	r := rules{
		cfg: Config{
			Namespace: "kube-system", Name: "explored", Mode: ByPresence{}, Detector: someDetector{},
			LeaseDuration: 4 * time.Second, RenewDeadline: 3 * time.Second, RetryPeriod: time.Second, DrainTimeout: time.Second,
		},
		decisions: decisions{plan: plan, assess: assess, assign: share.Assign, confirms: true, balances: true},
	}
	change(&r)
	return r
}

var seed = maphash.MakeSeed()

// origin is how a world came about: by which of the steps that were possible in another one.
type origin struct {
	from uint64
	step int32
}

// explore goes through all worlds that can come about, and returns how many there are, and how the first one came about
// in which something is wrong.
func explore(r rules, faults int8) (worlds int, fault string) {
	known := newAnswers()
	x, afterwards := &explorer{rules: r, answers: known}, &explorer{rules: r, answers: known}
	first := settled(r, faults)
	seen, calm := map[uint64]origin{maphash.Comparable(seed, first): {}}, map[uint64]bool{}
	for queue := []world{first}; len(queue) > 0; {
		var later []world
		for _, w := range queue {
			h := maphash.Comparable(seed, w)
			for n, s := range x.next(&w) {
				to := maphash.Comparable(seed, s.next)
				if _, again := seen[to]; again {
					continue
				}
				seen[to] = origin{h, int32(n)}
				wrong := x.wrong(&s.next)
				if wrong == "" {
					wrong = afterwards.calm(s.next, calm)
				}
				if wrong != "" {
					return len(seen), wrong + x.history(first, seen, to)
				}
				later = append(later, s.next)
			}
		}
		queue = later
	}
	return len(seen), ""
}

// history tells how a world has come about.
func (x *explorer) history(w world, seen map[uint64]origin, to uint64) (steps string) {
	var ways []int32
	for first := maphash.Comparable(seed, w); to != first; to = seen[to].from {
		ways = append(ways, seen[to].step)
	}
	for _, n := range slices.Backward(ways) {
		s := x.next(&w)[n]
		w, steps = s.next, steps+"\n"+s.what()
	}
	return steps
}

// wrong says what may never be.
func (x *explorer) wrong(w *world) string {
	if x.unpaced {
		return ""
	}
	for k := range ranges {
		n := 0
		for i := range processes {
			if c := w.processes[i].contests[k]; c.phase == working || c.phase == stopping {
				n++
			}
		}
		if n > 1 {
			return "two work in one range"
		}
	}
	return ""
}

// mostSteps is how many steps it takes at most until all ranges are led.
const mostSteps = 200

// calm lets nothing go wrong any more, and says what is wrong if not each range is led in the end.
func (x *explorer) calm(w world, known map[uint64]bool) string {
	w.faults = 0
	alive := 0
	for i := range processes {
		if p := &w.processes[i]; !p.dead {
			alive++
			p.hears = [processes]Sign{}
			w.see(i)
		}
	}
	for _, late := range w.late {
		if late.sort != noWrite && w.store[late.lease].revision == late.base {
			w.commit(int(late.lease), late.next)
		}
	}
	w.late = [2]lateWrite{}
	if alive == 0 {
		return ""
	}
	x.remember(&w)
	w = w.normal()
	var on []uint64
	var last []step
	for range mostSteps {
		h := maphash.Comparable(seed, w)
		if known[h] {
			break
		}
		on = append(on, h)
		if x.isWhole(&w) {
			break
		}
		last = append(last, x.first(&w))
		w = last[len(last)-1].next
	}
	if len(on) == mostSteps {
		ends := "nobody leads a range when nothing is wrong any more, and this goes on for ever:"
		for _, s := range last[len(last)-10:] {
			ends += "\n  " + s.what()
		}
		return ends + "\nafter this:"
	}
	for _, h := range on {
		known[h] = true
	}
	return ""
}

// first returns what happens next when nothing goes wrong: what is urgent, or what need not wait, or else time passes.
func (x *explorer) first(w *world) step {
	var calm step
	for _, s := range x.next(w) {
		if s.urgent {
			return s
		}
		if calm.what == nil || calm.time {
			calm = s
		}
	}
	return calm
}

// isWhole reports whether each range is led by one process, which the Lease shows, and nobody leads two while another
// one leads none.
func (x *explorer) isWhole(w *world) bool {
	if x.balances && !w.isEven() {
		return false
	}
	for k := range ranges {
		leaders := 0
		for i := range processes {
			if c := w.processes[i].contests[k]; c.phase == working || c.phase == stopping {
				if leaders++; c.phase == stopping || !w.store[k].isHeldBy(i, c.present, c.epoch) {
					return false
				}
			}
		}
		if leaders != 1 {
			return false
		}
	}
	return true
}

// isEven reports whether all processes that live lead as many ranges, or one more.
func (w *world) isEven() bool {
	least, most := ranges, 0
	for i := range processes {
		p := &w.processes[i]
		if p.dead {
			continue
		}
		n := 0
		for k := range ranges {
			if p.contests[k].phase == working {
				n++
			}
		}
		least, most = min(least, n), max(most, n)
	}
	return most-least <= 1
}

// The rules that are explored.
var (
	unprobed  = func(r *rules) { r.cfg.Detector = nil }
	probed    = func(r *rules) { r.mistaken = true }
	trusting  = func(r *rules) { r.cfg.SucceedUnfenced = true }
	withFence = func(r *rules) { r.cfg.Fenced, r.mistaken, r.unpaced = true, true, true }
)

// starting adds that a process starts at any time.
func starting(change func(*rules)) func(*rules) {
	return func(r *rules) {
		change(r)
		r.joins = true
	}
}

var mostFaults = flag.Int("faults", 1, "how many things go wrong in the worlds that are explored; 2 takes minutes")

func TestNoTwoWorkInOneRangeAndSomebodyLeadsItAgainWhateverHappens(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*rules)
		faults int
	}{
		{"without a probe", unprobed, *mostFaults},
		{"with a probe", probed, *mostFaults},
		{"with a probe whose word for a death is taken", trusting, *mostFaults},
		{"with a fence", withFence, 1}, // with 2 there are too many
		{"without a probe, and one starts", starting(unprobed), *mostFaults},
		{"with a probe, and one starts", starting(probed), *mostFaults},
		{"with a probe whose word for a death is taken, and one starts", starting(trusting), *mostFaults},
		{"with a fence, and one starts", starting(withFence), *mostFaults - 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			worlds, wrong := explore(exploring(test.change), int8(test.faults))
			if wrong != "" {
				t.Error(wrong)
			}
			t.Logf("%d worlds", worlds)
		})
	}
}

// Each of these changes of a decision is found.
func TestTheExplorationFindsWhatIsWrong(t *testing.T) {
	never := func(wrong func(decision) bool) func(*rules) {
		return func(r *rules) {
			r.plan = func(c Config, s situation) decision {
				d := plan(c, s)
				if wrong(d) {
					d.action = wait
				}
				return d
			}
		}
	}
	supposing := func(change func(*situation)) func(*rules) {
		return func(r *rules) {
			r.plan = func(c Config, s situation) decision {
				change(&s)
				return plan(c, s)
			}
		}
	}
	for name, test := range map[string]struct {
		rules, mutate func(*rules)
	}{
		"nothing is read before an expired lease is taken": {probed, func(r *rules) { r.confirms = false }},
		"a standby waits for less than the lease": {probed, supposing(func(s *situation) {
			s.seen.Since = s.seen.Since.Add(-time.Second)
		})},
		"a term lasts as long as the lease": {probed, func(r *rules) {
			r.assess = func(c Config, t tenure) assessment {
				c.LeaseDuration += c.DrainTimeout
				return assess(c, t)
			}
		}},
		"a term never ends by itself": {probed, func(r *rules) {
			r.assess = func(c Config, t tenure) assessment {
				t.renewals = renewals{}
				return assess(c, t)
			}
		}},
		"a sign of death counts without a fence":       {probed, supposing(func(s *situation) { s.holder.suspect, s.holder.fenced = true, s.holder.news.Sign != Alive })},
		"a process that steps down is dead":            {probed, supposing(func(s *situation) { s.holder.dead = s.seen.Since.Before(theTime) && s.holder.news.Sign == Alive })},
		"what nobody works under stays":                {probed, never(func(d decision) bool { return d.action == clear })},
		"an expired lease is left":                     {probed, never(func(d decision) bool { return d.trigger == TriggerExpiry })},
		"a released lease is left":                     {probed, never(func(d decision) bool { return d.trigger == TriggerRelease })},
		"the lease of a presence that is over is left": {probed, never(func(d decision) bool { return d.trigger == TriggerOwnerDeleted })},
		"only the one who should lead does, and that is the same for ever": {probed, func(r *rules) {
			r.assign = func([]string, map[string]int) []string { return []string{"p0", "p0"} }
			r.plan = func(c Config, s situation) decision {
				d := plan(c, s)
				if s.assigned != c.Instance && d.action == win {
					d.action = wait
				}
				return d
			}
		}},
		"a range stays with who has more than its share": {unprobed, func(r *rules) {
			r.assign = func(holders []string, replicas map[string]int) []string {
				assigned := share.Assign(holders, replicas)
				for k, holder := range holders {
					assigned[k] = cmp.Or(holder, assigned[k])
				}
				return assigned
			}
		}},
		"ranges go round for ever": {unprobed, func(r *rules) {
			r.assign = func(holders []string, replicas map[string]int) []string {
				assigned := share.Assign(holders, replicas)
				for k, holder := range holders {
					if others := slices.DeleteFunc(slices.Sorted(maps.Keys(replicas)), func(name string) bool { return name <= holder }); holder != "" && len(others) > 0 {
						assigned[k] = others[0]
					} else if holder != "" && len(replicas) > 1 {
						assigned[k] = slices.Min(slices.Collect(maps.Keys(replicas)))
					}
				}
				return assigned
			}
		}},
		"the dead are left in peace, with a fence": {withFence, never(func(d decision) bool { return d.trigger == TriggerExpiry || d.trigger == TriggerDeath })},
	} {
		t.Run(name, func(t *testing.T) {
			r := exploring(test.rules)
			test.mutate(&r)
			worlds, wrong := explore(r, 2)
			if wrong == "" {
				t.Errorf("not found in %d worlds", worlds)
			}
			t.Logf("found in %d worlds: %s", worlds, wrong)
		})
	}
}
