package control_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/regent-project/regent/pkg/election/control"
)

// deps is what the constructors of these tests get.
type deps struct{}

func descriptor(name string, needs ...string) control.Descriptor[deps] {
	return control.Descriptor[deps]{Name: name, Needs: needs, New: func(context.Context, deps) (control.Controller, error) {
		return nil, errors.New("not constructed here")
	}}
}

func everyReplica(d control.Descriptor[deps]) control.Descriptor[deps] {
	d.Scope = control.EveryReplica
	return d
}

func names(set []control.Descriptor[deps]) []string {
	out := []string{}
	for _, d := range set {
		out = append(out, d.Name)
	}
	return out
}

func TestTheRegistryKeepsOrderWithinEachScope(t *testing.T) {
	given := []control.Descriptor[deps]{descriptor("b", "a"), everyReplica(descriptor("r")), descriptor("a")}
	r, err := control.NewRegistry(given...)
	if err != nil {
		t.Fatal(err)
	}
	given[0].Name = "changed afterwards"
	if got := names(r.Scoped(control.LeaderOnly)); !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("leader-only: %v", got)
	}
	if got := names(r.Scoped(control.EveryReplica)); !slices.Equal(got, []string{"r"}) {
		t.Errorf("every replica: %v", got)
	}
}

func TestARegistryMayBeEmpty(t *testing.T) {
	r, err := control.NewRegistry[deps]()
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Scoped(control.LeaderOnly); len(got) != 0 {
		t.Errorf("got %v", names(got))
	}
}

func TestAFaultyRegistryNamesEveryFault(t *testing.T) {
	noConstructor, noScope := descriptor("hollow"), descriptor("lost")
	noConstructor.New = nil
	noScope.Scope = "somewhere"
	_, err := control.NewRegistry(
		descriptor(""), descriptor("Not_A_Label"), descriptor("twice"), descriptor("twice"), noConstructor, noScope,
		descriptor("lonely", "nobody"), everyReplica(descriptor("wide", "twice")),
		descriptor("x", "y"), descriptor("y", "z"), descriptor("z", "x"))
	if err == nil {
		t.Fatal("a faulty registry was accepted")
	}
	for _, want := range []string{
		"controller 1 of 11 has no name",
		`"Not_A_Label" is not a DNS label`,
		`"twice" is registered twice`,
		`"hollow" has no constructor`,
		`"lost" has unknown scope "somewhere"`,
		`"lonely" needs "nobody", which is not registered`,
		`"wide" (every-replica) needs "twice" (leader-only)`,
		"x -> y -> z -> x",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q:\n%v", want, err)
		}
	}
}

func TestAControllerMayNotNeedItself(t *testing.T) {
	_, err := control.NewRegistry(descriptor("a", "a"))
	if err == nil || !strings.Contains(err.Error(), "a -> a") {
		t.Errorf("got %v", err)
	}
}

func TestOnlyNeedsThatCanBeOrderedAreAccepted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := []string{"a", "b", "c", "d", "e"}
		var given []control.Descriptor[deps]
		needs := map[string][]string{}
		for _, name := range all {
			needs[name] = rapid.SliceOfNDistinct(rapid.SampledFrom(all), 0, 2, rapid.ID[string]).Draw(t, name)
			given = append(given, descriptor(name, needs[name]...))
		}
		started := map[string]bool{}
		for range all { // as often as the longest chain of needs
			for _, name := range all {
				if !slices.ContainsFunc(needs[name], func(need string) bool { return !started[need] }) {
					started[name] = true
				}
			}
		}
		_, err := control.NewRegistry(given...)
		if startable := len(started) == len(all); startable != (err == nil) {
			t.Fatalf("needs %v: all can start: %v, NewRegistry: %v", needs, startable, err)
		}
	})
}
