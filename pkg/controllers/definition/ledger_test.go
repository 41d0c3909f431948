package definition

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// many returns a group of definitions that have what they want.
func many(n int) (group []definition) {
	for i := range n {
		group = append(group, wanting(int64(i), ofKind(fmt.Sprintf("x%d", i))))
	}
	for i, d := range dueIn(group) {
		group[i] = d
	}
	return group
}

// What is done for a change is counted in allocations, which do not depend on how fast the machine is.
func TestAChangeIsLookedAtWithoutTheOthersOfItsGroup(t *testing.T) {
	cost := func(others int) float64 {
		l := newLedger(many(others))
		n := 0
		return testing.AllocsPerRun(100, func() {
			n++
			d := wanting(9999, ofKind("new"))
			d.ResourceVersion = strconv.Itoa(n)
			l.show(d.Name, d)
			due := l.due()
			if len(due) != 1 {
				t.Fatalf("%d are due", len(due))
			}
			l.wrote(due[0])
			l.show(d.Name, nil)
		})
	}
	if few, many := cost(10), cost(5000); many > few+10 {
		t.Errorf("%v allocations beside 10 definitions, %v beside 5,000", few, many)
	}
}

// A ledger that is kept knows what one knows that is made anew, whatever comes, goes and changes, and whichever writes
// fail.
func TestALedgerThatIsKeptKnowsWhatANewOneKnows(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		kept, revision := newLedger(nil), 0
		var group []definition // as it is stored
		store := func(d definition) definition {
			d = d.DeepCopy()
			revision++
			d.ResourceVersion = strconv.Itoa(revision)
			if n := slices.IndexFunc(group, func(o definition) bool { return o.Name == d.Name }); n >= 0 {
				group = write(group, d)
			} else {
				group = append(slices.Clone(group), d)
			}
			return d
		}
		for range rapid.IntRange(1, 20).Draw(r, "steps") {
			n := -1
			if len(group) > 0 {
				n = rapid.IntRange(-1, len(group)-1).Draw(r, "which")
			}
			switch {
			case n < 0:
				d := wanting(rapid.Int64Range(1, 3).Draw(r, "age"), drawNames(r))
				d.Name = fmt.Sprint("d", revision)
				d = store(d)
				kept.show(d.Name, d)
			case rapid.Bool().Draw(r, "deleted"):
				name := group[n].Name
				group = slices.Delete(slices.Clone(group), n, n+1)
				kept.show(name, nil)
			default:
				d := group[n].DeepCopy()
				d.Spec.Names = drawNames(r)
				d = store(d)
				kept.show(d.Name, d)
			}
			for _, d := range kept.due() {
				if rapid.Bool().Draw(r, "written") {
					was := group[slices.IndexFunc(group, func(o definition) bool { return o.Name == d.Name })]
					kept.wrote(store(d))
					distinctIn(r, group)
					if rapid.Bool().Draw(r, "late") {
						kept.show(d.Name, was)
					}
				}
			}
			// What is due only after another write shows once that has been made.
			got, want := namesOf(kept.due()), namesOf(dueIn(group))
			if (len(got) == 0) != (len(want) == 0) {
				r.Fatalf("due by the one that is kept: %v, by a new one: %v", got, want)
			}
		}
	})
}

func namesOf(all []definition) (out []string) {
	for _, d := range all {
		out = append(out, fmt.Sprintf("%s %+v %v", d.Name, d.Status.AcceptedNames, reason(d, "NamesAccepted")))
	}
	return out
}
