package clusters

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// However objects come and go: a group has those that came and did not go, and an empty one takes no memory.
func TestAnIndexHasTheObjectsThatItWasGiven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, want := groups[int]{}, map[string]map[Key]int{}
		for n := range rapid.IntRange(1, 30).Draw(t, "changes") {
			value := rapid.SampledFrom([]string{"v", "w"}).Draw(t, "value")
			k := Key{Cluster: "c", Name: fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "key"))}
			if want[value] == nil {
				want[value] = map[Key]int{}
			}
			if rapid.Bool().Draw(t, "put") {
				g.put(value, k, n)
				want[value][k] = n
			} else {
				g.drop(value, k)
				delete(want[value], k)
			}
			for value, objects := range want {
				if got, want := slices.Sorted(slices.Values(g[value].all())), slices.Sorted(maps.Values(objects)); !slices.Equal(got, want) {
					t.Fatalf("%s has %v, want %v", value, got, want)
				}
				if _, ok := g[value]; ok != (len(objects) > 0) {
					t.Fatalf("%s is there: %t, with %d objects", value, ok, len(objects))
				}
			}
		}
	})
}
