package election_test

import (
	"testing"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/internal/series/seriestest"
)

// A program whose elections come and go does not fill its metrics with names that have gone.
func TestAnElectorThatIsClosedLeavesNoSeries(t *testing.T) {
	series := func(name string) int { return seriestest.Count("name", name) }
	const name = "comes-and-goes"
	made := func() *election.Elector {
		cfg := newConfig(electiontest.NewStore(name).Client())
		cfg.Name = name
		elector, err := election.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return elector
	}
	first := made()
	before := series(name)
	second := made()
	first.Close()
	if n := series(name); before == 0 || n != before {
		t.Errorf("%d series while the second shows them, want %d", n, before)
	}
	second.Close()
	second.Close()
	if n := series(name); n != 0 {
		t.Errorf("%d series are left", n)
	}
}
