package edge

import (
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/regent-project/regent/pkg/clusters"
)

// What etcd keeps until it is compacted, and Events, have bounds of their own, by how much etcd may have.
func TestWhatEtcdKeepsHasBoundsByItsQuota(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Now().Add(time.Hour))
	w := NewWriteLimits(0, now)
	w.Fit(8000)
	written := func(cluster string, n int) {
		for range n {
			w.Wrote(clusters.With(request.WithUser(t.Context(), &user.DefaultInfo{Name: cluster}), logicalcluster.Name(cluster)), true, 1)
			w.Saw(logicalcluster.Name(cluster), 1)
		}
	}
	exceeds := func(by namedLedger, tenant string) bool {
		_, ok := by.Excess(now.Now(), tenant, "")
		return ok
	}
	written("a", 1000)
	if exceeds(w.compaction, "a") || exceeds(w.history, "a") {
		t.Error("half of a quarter of the quota is too much")
	}
	written("a", 1)
	if !exceeds(w.compaction, "a") || exceeds(w.events, "a") || exceeds(w.compaction, "b") {
		t.Error("more than half of a quarter of the quota is not too much, or too much of something else")
	}
	w.Fit(16000)
	if exceeds(w.compaction, "a") {
		t.Error("a larger quota makes no difference")
	}
	now.SetTime(now.Now().Add(compactionWindow + time.Minute))
	w.Fit(8)
	if exceeds(w.compaction, "a") {
		t.Error("what was written counts after a compaction")
	}
	w.Saw("root", 100)
	if exceeds(w.compaction, "root") {
		t.Error("what is written in an operator's cluster counts")
	}
}
