package control_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/regent-project/regent/pkg/election/control"
)

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
