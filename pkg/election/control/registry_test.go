package control_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

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

func TestAPanicTellsWhereAndWhatAndKeepsItsStackApart(t *testing.T) {
	cause := errors.New("cause")
	var p *control.Panic
	func() {
		defer func() { p = control.Recovered("a test", recover()) }()
		panicHere(cause)
	}()
	if got := p.Error(); got != "panic in a test: cause" {
		t.Errorf("got %q", got)
	}
	if !errors.Is(p, cause) {
		t.Error("the panic's value is not in the chain")
	}
	if !strings.Contains(string(p.Stack), "panicHere") {
		t.Errorf("the stack does not show who panicked:\n%s", p.Stack)
	}
}

func panicHere(value any) { panic(value) }

func TestARegistryIsExtendedByMakingAnother(t *testing.T) {
	ours, err := control.NewRegistry(descriptor("ours"))
	if err != nil {
		t.Fatal(err)
	}
	both, err := ours.With(descriptor("theirs", "ours"))
	if err != nil {
		t.Fatal(err)
	}
	if got := names(both.Scoped(control.LeaderOnly)); !slices.Equal(got, []string{"ours", "theirs"}) {
		t.Errorf("got %v", got)
	}
	if got := names(ours.Scoped(control.LeaderOnly)); !slices.Equal(got, []string{"ours"}) {
		t.Errorf("the first one has changed: %v", got)
	}
	if _, err := ours.With(descriptor("ours")); err == nil {
		t.Error("a name was taken twice")
	}
}
