package definition

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"pgregory.net/rapid"
)

func TestWhoHasANameIsTold(t *testing.T) {
	group := dueIn([]definition{wanting(1, ofKind("a"))})
	l := newLedger(group)
	b := ofKind("b")
	l.hold([]holder{{"APIBinding b", &b}})
	wants := ofKind("c")
	wants.Singular, wants.ShortNames, wants.Kind = "a", []string{"bs", "cc"}, "Kb"
	if got := l.conflicts(&wants); !slices.Equal(got, []string{
		`"a" is in use by CustomResourceDefinition as.example.com`, `"bs" is in use by APIBinding b`, `"Kb" is in use by APIBinding b`,
	}) {
		t.Errorf("%q", got)
	}
	d := wanting(2, b)
	d.Name = "late"
	l.show(d.Name, d)
	due := l.due()
	if len(due) != 1 || !strings.Contains(due[0].Status.Conditions[0].Message, "APIBinding b") {
		t.Fatalf("due: %v", due)
	}
	l.wrote(due[0])
	if due := l.due(); len(due) != 0 {
		t.Errorf("it waits, and says so; due: %v", due)
	}
	l.hold(nil)
	if due = l.due(); len(due) != 1 || due[0].Status.AcceptedNames.Plural != "bs" {
		t.Errorf("the names are free; due: %v", due)
	}
}

// Definitions and bindings come, go and change, and whichever writes fail: no name is ever a definition's and a
// binding's, or of two bindings, and in the end nobody waits for what is free.
func TestNoNameIsADefinitionsAndABindings(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var group []definition
		bound := map[string]*names{}
		waiting := map[string]*names{}
		holders := func() (all []holder) {
			for _, who := range slices.Sorted(maps.Keys(bound)) {
				all = append(all, holder{who, bound[who]})
			}
			return all
		}
		l := newLedger(nil) // it is kept
		bind := func(who string) {
			n := waiting[who]
			if l.hold(holders()); len(l.conflicts(n)) == 0 {
				bound[who] = n
				delete(waiting, who)
			}
		}
		write := func(all bool) {
			l.hold(holders())
			for _, d := range l.due() {
				if all || rapid.Bool().Draw(r, "written") {
					group = write(group, d)
					l.wrote(d)
				}
			}
		}
		for step := range rapid.IntRange(1, 15).Draw(r, "steps") {
			switch rapid.IntRange(0, 4).Draw(r, "what") {
			case 0:
				d := wanting(rapid.Int64Range(1, 3).Draw(r, "age"), drawNames(r))
				d.Name = fmt.Sprint("d", step)
				group = append(group, d)
				l.show(d.Name, d)
			case 1:
				n := drawNames(r)
				waiting[fmt.Sprint("b", step)] = &n
			case 2:
				if len(group) > 0 {
					n := rapid.IntRange(0, len(group)-1).Draw(r, "deleted")
					l.show(group[n].Name, nil)
					group = slices.Delete(slices.Clone(group), n, n+1)
				}
			case 3:
				for _, who := range slices.Sorted(maps.Keys(bound)) {
					if rapid.Bool().Draw(r, "unbound") {
						delete(bound, who)
					}
				}
			case 4:
				for _, who := range slices.Sorted(maps.Keys(waiting)) {
					if rapid.Bool().Draw(r, "tried") {
						bind(who)
					}
				}
			}
			write(false)
			distinctIn(r, append(slices.Clone(group), asDefinitions(bound)...))
		}
		for range 10 { // each gives way to others at most once
			write(true)
			for _, who := range slices.Sorted(maps.Keys(waiting)) {
				bind(who)
			}
		}
		distinctIn(r, append(slices.Clone(group), asDefinitions(bound)...))
		for who, n := range waiting {
			l.hold(holders())
			if len(l.conflicts(n)) == 0 {
				r.Fatalf("%s waits for free names %+v", who, n)
			}
		}
		l.hold(holders())
		if due := l.due(); len(due) > 0 {
			r.Fatalf("still due: %v", namesOf(due))
		}
	})
}

// asDefinitions are for distinctIn.
func asDefinitions(bound map[string]*names) (all []definition) {
	for who, n := range bound {
		d := &apiextensionsv1.CustomResourceDefinition{Status: apiextensionsv1.CustomResourceDefinitionStatus{AcceptedNames: *n}}
		d.Name = who
		all = append(all, d)
	}
	return all
}
