package clusters_test

import (
	"testing"

	"github.com/regent-project/regent/pkg/clusters"
)

func TestQuotasAreQuantities(t *testing.T) {
	for value, want := range map[string]int64{"0": 0, "20000": 20_000, "20k": 20_000, "1Mi": 1 << 20} {
		if got, err := clusters.ParseQuota(value); err != nil || got != want {
			t.Errorf("%s: %d, %v", value, got, err)
		}
	}
	for _, value := range []string{"", "many", "-1", "0.5", "1e30"} {
		if got, err := clusters.ParseQuota(value); err == nil {
			t.Errorf("%q is %d", value, got)
		}
	}
}
