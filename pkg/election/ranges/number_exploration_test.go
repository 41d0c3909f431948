package ranges

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// This file explores what can happen to three processes while the number of ranges changes: by breadth first, through
// all interleavings of what they see, decide and write. The decisions are those of stage.go. The store, the views and
// the terms are a model: a compare-and-swap succeeds if nobody has written since the process has looked, a view is what
// the store was when the process last looked, and work goes on for a while after its term.

// rules are the decisions.
type rules struct {
	stageOf    func(now number, wants map[string]int, self string) stage
	mayAcquire func(s stage, now number) bool
	nextNumber func(s stage, now number, self string, leadsAll, holds bool) (number, bool)
	isGivenUp  func(s stage, now number) bool
}

var realRules = rules{stageOf, stage.mayAcquire, stage.nextNumber, stage.isGivenUp}

const (
	mostProcesses = 3
	mostLeases    = 4 // that of the election, which with one range is that of the range, and of three ranges
)

// leasesOf returns the leases of so many ranges.
func leasesOf(n int) []int {
	if n == 1 {
		return []int{0}
	}
	return []int{1, 2, 3}[:n]
}

// The holders of a lease that no process holds.
const (
	free    int8 = -1
	forEver int8 = -2 // the election's, while there are several ranges
)

// shelf is what is stored.
type shelf struct {
	number  number
	holders [mostLeases]int8
	present [mostProcesses]bool
}

// task is what a process does under a lease.
type task int8

const (
	nothing task = iota
	working
	holding  // a lease, to change the number
	draining // its term is over, and its work has not stopped
)

// lateWrite is one that is on its way, and of which its process hears nothing.
type lateWrite struct {
	of   int8 // the lease; -1: there is none
	sets number
	cas  bool // nobody has written that Lease since
}

// mind is what a process knows and does.
type mind struct {
	alive bool
	stops bool // it ends its terms, and goes
	sees  shelf
	fresh [mostLeases]bool // it sees the Lease as it is
	stage stage
	tasks [mostLeases]task
	late  lateWrite
}

type universe struct {
	store  shelf
	minds  [mostProcesses]mind
	faults int8 // how many may still happen
}

// settings is what does not change.
type settings struct {
	rules
	wants [mostProcesses]int
	// leaves is the number that those want who may stop; 0: nobody stops.
	leaves int
	// every how many universes it is looked whether all ranges are led in the end
	every int
}

func nameOfProcess(p int) string { return string(rune('a' + p)) }

// stage returns the stage that a process should be in by what it sees.
func (e settings) stage(u universe, p int) stage {
	if u.minds[p].stops {
		return stage{}
	}
	wants := map[string]int{nameOfProcess(p): e.wants[p]}
	for q, present := range u.minds[p].sees.present {
		if present {
			wants[nameOfProcess(q)] = e.wants[q]
		}
	}
	return e.rules.stageOf(u.minds[p].sees.number, wants, nameOfProcess(p))
}

// write writes a Lease for a process, if it sees that as it is.
func (u *universe) write(p, i int, holder int8) bool {
	if !u.minds[p].fresh[i] {
		return false
	}
	u.store.holders[i] = holder
	for q := range u.minds {
		u.minds[q].fresh[i] = q == p
		if int(u.minds[q].late.of) == i {
			u.minds[q].late.cas = false
		}
	}
	u.minds[p].sees.holders[i] = holder
	return true
}

// writeNumber writes the number, for which the process sees the Lease as it is.
func (u *universe) writeNumber(p int, n number) {
	holder := forEver
	if n.Ranges == 1 && n.Next == 0 {
		holder = free
	}
	if u.write(p, 0, holder) {
		u.store.number, u.minds[p].sees.number = n, n
	}
}

// next returns all that can happen next, by what it is.
func (e settings) next(u universe) map[string]universe {
	all := map[string]universe{}
	add := func(what string, p int, change func(u *universe, m *mind)) {
		then := u
		change(&then, &then.minds[p])
		if then != u {
			all[nameOfProcess(p)+" "+what] = then
		}
	}
	for p := range u.minds {
		m := u.minds[p]
		if m.late.of >= 0 {
			add("is late", p, func(u *universe, m *mind) { u.land(p) })
		}
		if !m.alive {
			continue
		}
		for what, change := range e.moves(u, p, false) {
			add(what, p, change)
		}
		if e.wants[p] == e.leaves {
			add("begins to stop", p, func(_ *universe, m *mind) { m.stops = true })
		}
		if u.faults == 0 {
			continue
		}
		add("dies", p, func(u *universe, m *mind) {
			u.faults--
			*m = mind{late: m.late}
			u.store.present[p] = false
		})
		if m.tasks == [mostLeases]task{} && u.store.present[p] {
			// its terms end in time, and what it holds is left; a write of it may still be on its way
			add("is present no more", p, func(u *universe, m *mind) {
				u.faults--
				u.store.present[p] = false
			})
		}
	}
	return all
}

// land makes the late write of a process.
func (u *universe) land(p int) {
	w := u.minds[p].late
	u.minds[p].late = lateWrite{of: -1}
	if !w.cas {
		return
	}
	seen, fresh := u.minds[p].sees, u.minds[p].fresh
	u.minds[p].fresh[w.of] = true
	if w.sets.Ranges != 0 {
		u.writeNumber(p, w.sets)
	} else {
		u.write(p, int(w.of), int8(p))
	}
	u.minds[p].sees, u.minds[p].fresh = seen, fresh // nobody tells it
	u.minds[p].fresh[w.of] = false
}

// moves returns what a process can do, faults aside. Its Electors acquire until they are told of another stage, unless
// they are slow.
func (e settings) moves(u universe, p int, slow bool) map[string]func(u *universe, m *mind) {
	m, moves := u.minds[p], map[string]func(u *universe, m *mind){}
	moves["looks"] = func(u *universe, m *mind) { m.sees, m.fresh = u.store, [mostLeases]bool{true, true, true, true} }
	if !u.store.present[p] {
		moves["is present again"] = func(u *universe, _ *mind) { u.store.present[p] = true }
		return moves
	}
	want := e.stage(u, p)
	for i, t := range m.tasks {
		switch {
		case t == working && (want != m.stage || m.sees.holders[i] != int8(p)):
			moves[fmt.Sprint("ends ", i)] = func(_ *universe, m *mind) { m.tasks[i] = draining }
		case t == draining, t == holding && (want != m.stage || m.sees.holders[i] != int8(p)):
			moves[fmt.Sprint("releases ", i)] = func(u *universe, m *mind) {
				m.tasks[i] = nothing
				if u.store.holders[i] == int8(p) {
					m.fresh[i] = true // it reads before it tries again
					u.write(p, i, free)
				}
			}
		case t == nothing && m.sees.holders[i] == int8(p): // by a late write
			moves[fmt.Sprint("clears ", i)] = func(u *universe, _ *mind) { u.write(p, i, free) }
		}
	}
	if m.stops && m.stage == want {
		moves["goes"] = func(u *universe, m *mind) {
			*m = mind{late: m.late}
			u.store.present[p] = false
		}
		return moves
	}
	if want != m.stage {
		if m.tasks == [mostLeases]task{} {
			moves["goes on"] = func(_ *universe, m *mind) { m.stage = want }
		}
		if slow {
			return moves
		}
	}
	e.acquisitions(u, p, moves)
	e.numbers(u, p, moves)
	return moves
}

// acquisitions adds the leases that a process can acquire.
func (e settings) acquisitions(u universe, p int, moves map[string]func(u *universe, m *mind)) {
	m := u.minds[p]
	if m.stage.do != work && m.stage.do != gather || !e.mayAcquire(m.stage, m.sees.number) {
		return
	}
	does := working
	if m.stage.do == gather {
		does = holding
	}
	for _, i := range leasesOf(m.stage.of) {
		holder := m.sees.holders[i]
		if m.tasks[i] != nothing || holder == int8(p) || holder == forEver || holder >= 0 && m.sees.present[holder] {
			continue
		}
		moves[fmt.Sprint("acquires ", i)] = func(u *universe, m *mind) {
			if u.write(p, i, int8(p)) {
				m.tasks[i] = does
			}
		}
		if u.faults > 0 && m.late.of < 0 {
			moves[fmt.Sprint("acquires late ", i)] = func(u *universe, m *mind) {
				u.faults--
				m.late = lateWrite{of: int8(i), cas: m.fresh[i]}
			}
		}
	}
}

// numbers adds the numbers that a process can write.
func (e settings) numbers(u universe, p int, moves map[string]func(u *universe, m *mind)) {
	m := u.minds[p]
	if e.isGivenUp(m.stage, m.sees.number) {
		moves["gives up"] = func(u *universe, m *mind) { u.writeNumber(p, number{Ranges: m.sees.number.Ranges}) }
	}
	leadsAll := !slices.ContainsFunc(leasesOf(max(1, m.stage.of)), func(i int) bool { return m.tasks[i] != holding })
	n, writes := e.nextNumber(m.stage, m.sees.number, nameOfProcess(p), leadsAll, m.sees.holders[0] == int8(p))
	if !writes {
		return
	}
	moves["writes the number"] = func(u *universe, _ *mind) { u.writeNumber(p, n) }
	if u.faults > 0 && m.late.of < 0 {
		moves["writes the number late"] = func(u *universe, m *mind) {
			u.faults--
			m.late = lateWrite{of: 0, sets: n, cas: m.fresh[0]}
		}
	}
}

// fault returns what must not be in a universe; empty: nothing.
func (u universe) fault() string {
	for p := range u.minds {
		for q := range p {
			a, b := u.minds[p], u.minds[q]
			for i, t := range a.tasks {
				for j, other := range b.tasks {
					works := (t == working || t == draining) && (other == working || other == draining)
					if works && (a.stage.of != b.stage.of || i == j) {
						return fmt.Sprintf("%s works in %d of %d, and %s in %d of %d", nameOfProcess(p), i, a.stage.of, nameOfProcess(q), j, b.stage.of)
					}
				}
			}
		}
	}
	return ""
}

// settles lets everybody do what it can, in turns and without faults, and returns whether all ranges are led then, of
// the number that all want, or of that which there is.
func (e settings) settles(u universe) bool {
	u.faults = 0
	for range 60 {
		before := u
		for p := range u.minds {
			if u.minds[p].late.of >= 0 {
				u.land(p)
			}
			for range 2 * mostLeases {
				if !u.minds[p].alive {
					break
				}
				moves := e.moves(u, p, true)
				names := slices.Sorted(maps.Keys(moves))
				for _, name := range names {
					then := u
					moves[name](&then, &then.minds[p])
					if then != u {
						u = then
						break
					}
				}
			}
		}
		if u == before {
			break
		}
	}
	wants := map[string]int{}
	for p, m := range u.minds {
		if m.alive {
			wants[nameOfProcess(p)] = e.wants[p]
		}
	}
	if len(wants) == 0 {
		return true
	}
	if n := agreed(wants); n != 0 && u.store.number != (number{Ranges: n}) || u.store.number.Next != 0 {
		return false
	}
	for _, i := range leasesOf(u.store.number.Ranges) {
		if !slices.ContainsFunc(u.minds[:], func(m mind) bool { return m.tasks[i] == working && m.stage.of == u.store.number.Ranges }) {
			return false
		}
	}
	return true
}

// explore looks at all that can happen. It returns how much that is, and how what must not happen does; nil: it cannot.
func (e settings) explore(from, faults int) (universes int, how []string) {
	first := universe{faults: int8(faults), store: shelf{number: number{Ranges: from}}}
	for i := range first.store.holders {
		first.store.holders[i] = free
	}
	if from > 1 {
		first.store.holders[0] = forEver
	}
	for p := range first.minds {
		first.store.present[p] = e.wants[p] > 0
	}
	for p := range first.minds {
		first.minds[p] = mind{alive: e.wants[p] > 0, sees: first.store, fresh: [mostLeases]bool{true, true, true, true}, late: lateWrite{of: -1}}
	}
	type step struct {
		from universe
		what string
	}
	came, queue := map[universe]step{first: {}}, []universe{first}
	trace := func(u universe, last string) []string {
		steps := []string{last}
		for u != first {
			steps = append(steps, came[u].what)
			u = came[u].from
		}
		slices.Reverse(steps)
		return steps
	}
	for looked := 0; len(queue) > 0; {
		u := queue[0]
		queue = queue[1:]
		if fault := u.fault(); fault != "" {
			return len(came), trace(u, fault)
		}
		if looked++; looked%e.every == 0 && !e.settles(u) {
			return len(came), trace(u, "then not all ranges are ever led of the right number")
		}
		for what, then := range e.next(u) {
			if _, known := came[then]; !known {
				came[then] = step{u, what}
				queue = append(queue, then)
			}
		}
		if len(came) > mostUniverses {
			return len(came), []string{"there is no end"}
		}
	}
	return len(came), nil
}

const mostUniverses = 3_000_000

var moreFaults = flag.Int("more-faults", 0, "how many more faults the exploration makes where it makes any")

// changes are those of the number that are explored: of three processes without a fault, and of two with some. Those
// that want what there is may stop in an orderly way if there is none.
var changes = []struct {
	from   int
	wants  [mostProcesses]int // 0: there is no such process
	faults int
}{{1, [3]int{2, 2, 1}, 0}, {1, [3]int{2, 1, 1}, 0}, {2, [3]int{1, 1, 2}, 0}, {2, [3]int{3, 3, 2}, 0}, {2, [3]int{3, 2, 0}, 1}}

// I17: however the processes interleave, no two work for one key, and in the end all ranges are led, of the number that
// all want.
func TestNoTwoWorkForOneKeyHoweverTheNumberChanges(t *testing.T) {
	for _, c := range changes {
		e, faults := settings{rules: realRules, wants: c.wants, every: 10}, c.faults
		if faults == 0 {
			e.leaves = c.from
		} else {
			faults += *moreFaults
		}
		n, how := e.explore(c.from, faults)
		if how != nil {
			t.Errorf("from %d, wanted %v:\n%s", c.from, c.wants, strings.Join(how, "\n"))
		}
		t.Logf("from %d, wanted %v: %d universes", c.from, c.wants, n)
	}
}

// Each rule is needed.
func TestTheExplorationFindsWhatIsWrongWithTheNumber(t *testing.T) {
	for name, change := range map[string]func(r *rules){
		"leases are acquired while the number changes": func(r *rules) {
			r.mayAcquire = func(s stage, now number) bool { return now.Ranges == s.of && s.do != yield }
		},
		"leases of any number are acquired": func(r *rules) {
			r.mayAcquire = func(s stage, now number) bool { return s.do == gather || s.do == work && now.Next == 0 }
		},
		"the number is written before all terms have ended": func(r *rules) {
			r.nextNumber = func(s stage, now number, self string, _, holds bool) (number, bool) {
				return s.nextNumber(now, self, true, holds)
			}
		},
		"nobody says that it changes the number": func(r *rules) {
			r.nextNumber = func(s stage, now number, self string, leadsAll, holds bool) (number, bool) {
				if s.do == gather && s.of == now.Ranges && s.of > 1 {
					return number{Ranges: s.next}, leadsAll
				}
				return s.nextNumber(now, self, leadsAll, holds)
			}
		},
		"no change is given up": func(r *rules) {
			r.isGivenUp = func(stage, number) bool { return false }
		},
		"one that wants another number changes it": func(r *rules) {
			r.stageOf = func(now number, wants map[string]int, self string) stage {
				return stageOf(now, map[string]int{self: wants[self]}, self)
			}
		},
		"the others work on while one changes it": func(r *rules) {
			r.stageOf = func(now number, wants map[string]int, self string) stage {
				s := stageOf(now, wants, self)
				if s.do == yield {
					s = stage{do: work, of: s.of}
				}
				return s
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			wrong := realRules
			change(&wrong)
			for _, e := range []struct {
				settings
				from, faults int
			}{
				{settings{rules: wrong, wants: [3]int{2, 2, 1}, leaves: 1, every: 1}, 1, 0},
				{settings{rules: wrong, wants: [3]int{1, 1, 2}, leaves: 2, every: 10}, 2, 0},
				{settings{rules: wrong, wants: [3]int{3, 2, 0}, every: 100}, 2, 2},
			} {
				if _, how := e.explore(e.from, e.faults); how != nil {
					t.Logf("wanted %v:\n%s", e.wants, strings.Join(how, "\n"))
					return
				}
			}
			t.Error("the exploration does not find it")
		})
	}
}
