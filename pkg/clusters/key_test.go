package clusters_test

import (
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	"pgregory.net/rapid"

	"github.com/regent-project/regent/pkg/clusters"
)

func TestTwoKeysNeverShareAString(t *testing.T) {
	keys := rapid.Custom(func(t *rapid.T) clusters.Key {
		return clusters.Key{
			Cluster:   logicalcluster.Name(rapid.StringMatching(`[ab]{1,2}|system:[ab]`).Draw(t, "cluster")),
			Namespace: rapid.StringMatching(`[ab]{0,2}`).Draw(t, "namespace"),
			// all that a path segment may hold, some kinds allow
			Name: rapid.StringMatching(`[ab|:]{1,3}`).Draw(t, "name"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		k, l := keys.Draw(t, "k"), keys.Draw(t, "l")
		if (k == l) != (k.String() == l.String()) {
			t.Fatalf("%#v and %#v are %q and %q", k, l, k, l)
		}
	})
}
