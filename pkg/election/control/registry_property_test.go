package control_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/regent-project/regent/pkg/election/control"
)

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
