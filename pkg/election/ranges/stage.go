package ranges

import (
	"fmt"
	"maps"
	"slices"
)

// stage is what a process does while nothing changes. The zero stage waits until it knows more.
type stage struct {
	do doing
	// of is how many ranges there are, and next how many there will be then.
	of, next int
}

// doing says what a process does.
type doing int

const (
	// await: it leads nothing, because it does not know how many ranges there are.
	await doing = iota
	// work: it leads its share.
	work
	// yield: it leads nothing, so that another process can change the number.
	yield
	// gather: it takes all ranges without any work, to change the number.
	gather
)

// stageOf decides what a process does. wants says which number each process that is present wants, by Instance, and has
// this process itself. The result depends on the arguments alone.
func stageOf(now number, wants map[string]int, self string) stage {
	switch next := agreed(wants); {
	case next == 0, next == now.Ranges:
		return stage{do: work, of: now.Ranges}
	case self == slices.Min(slices.Collect(maps.Keys(wants))):
		return stage{do: gather, of: now.Ranges, next: next}
	default:
		return stage{do: yield, of: now.Ranges, next: next}
	}
}

// agreed returns the number that all want; 0: they want different ones.
func agreed(wants map[string]int) (all int) {
	for _, n := range wants {
		if all != 0 && n != all {
			return 0
		}
		all = n
	}
	return all
}

// isGivenUp reports whether a change of the number has begun that does not go on: not all want it any more.
func (s stage) isGivenUp(now number) bool { return s.do == work && now.Next != 0 }

// nextNumber returns the number that a process which gathers writes next, if it can write now. leadsAll says whether it
// leads all ranges, and holds whether the Lease of the election shows that it holds it: with one range that is the
// Lease of the range.
func (s stage) nextNumber(now number, self string, leadsAll, holds bool) (next number, write bool) {
	mark := number{Ranges: s.of, Next: s.next, Changer: self}
	switch {
	case s.do != gather, now.Ranges != s.of:
		return number{}, false
	case s.of == 1:
		return number{Ranges: s.next}, leadsAll && holds
	case now != mark:
		return mark, true
	default:
		return number{Ranges: s.next}, leadsAll
	}
}

// mayAcquire reports whether a process may acquire the lease of a range under that number.
func (s stage) mayAcquire(now number) bool {
	return now.Ranges == s.of && (s.do == gather || s.do == work && now.Next == 0)
}

// waits says why a process leads nothing; empty: it leads its share.
func (s stage) waits() string {
	switch s.do {
	case await:
		return "it is not known how many ranges there are"
	case yield:
		return fmt.Sprintf("the number of ranges changes from %d to %d", s.of, s.next)
	case gather:
		return fmt.Sprintf("this process changes the number of ranges from %d to %d", s.of, s.next)
	default:
		return ""
	}
}
