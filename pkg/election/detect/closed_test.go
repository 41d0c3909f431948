package detect

import (
	"testing"

	"github.com/regent-project/regent/pkg/election/internal/series/seriestest"
)

// A program whose elections come and go does not fill its metrics with names that have gone.
func TestADetectorThatIsClosedLeavesNoSeries(t *testing.T) {
	series := func(name string) int { return seriestest.Count("name", name) }
	cfg := DefaultConfig()
	cfg.Name, cfg.Replica, cfg.Advertise, cfg.Listen = "comes-and-goes", "a", "127.0.0.1", "127.0.0.1:0"
	first, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	_ = first.For("another-that-goes")
	shown := series(cfg.Name)
	second, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	if n := series(cfg.Name); shown == 0 || n != shown || series("another-that-goes") != 0 {
		t.Errorf("%d series while the second shows them, want %d; of the other Lease %d", n, shown, series("another-that-goes"))
	}
	second.Close()
	second.Close()
	if n := series(cfg.Name); n != 0 {
		t.Errorf("%d series are left", n)
	}
}
