package server

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/controllers/catalog"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/test/etcdtest"
)

// I5 and I17: a replica that leads several ranges has after many terms of random ones what it had after a few of each:
// goroutines, connections, series, and what all controllers hold. (-terms=1000 is the long form.)
func TestTermsOfRangesLeaveNothingBehind(t *testing.T) {
	const of, warm = 4, 3 // terms of each range, until what is seen for the first time was
	cfg := config(t, t.TempDir())
	cfg.EmbeddedEtcd, cfg.Etcd = nil, etcdtest.Start(t)
	var err error
	if cfg.Registry, err = catalog.Registry(); err != nil {
		t.Fatal(err)
	}
	cfg.EnableLeaderElection, cfg.Election.Mode, cfg.Election.Ranges = true, election.ByPresence{}, of
	cfg.Election.LeaseDuration, cfg.Election.RenewDeadline, cfg.Election.RetryPeriod = 10*time.Second, 8*time.Second, 20*time.Millisecond
	r := startReplica(t, cfg)
	endpoints := r.admin(t)
	series := func() int {
		body, err := endpoints.Get().AbsPath("/metrics").Do(t.Context()).Raw()
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Count(body, []byte("\n"))
	}
	group := func() map[int]int64 { // the epochs of the ranges that it leads
		epochs := map[int]int64{}
		var told status.Replica
		if body, err := endpoints.Get().AbsPath(status.ReplicaPath).Do(t.Context()).Raw(); err != nil || json.Unmarshal(body, &told) != nil || told.Ranges == nil {
			return epochs
		}
		for _, one := range told.Ranges.Ranges {
			if one.State == status.StateLeading {
				epochs[one.Range] = one.Epoch
			}
		}
		return epochs
	}
	next := func(k int) {
		t.Helper()
		before := group()[k]
		until(t, "the term of range "+strconv.Itoa(k)+" is asked to end", func() bool {
			return endpoints.Post().AbsPath(routing.StepDownPath).Param("range", strconv.Itoa(k)).Do(t.Context()).Error() == nil
		})
		until(t, "range "+strconv.Itoa(k)+" is led again", func() bool { return group()[k] > before })
	}
	until(t, "it leads all ranges", func() bool { return len(group()) == of })
	for range warm {
		for k := range of {
			next(k)
		}
	}
	before, shown := leastFootprint(t), series()
	t.Logf("%d terms: %v, %d lines of metrics", warm*of, before, shown)
	for range *termsFlag {
		next(rand.IntN(of))
	}
	after, now := leastFootprint(t), series()
	t.Logf("%d terms more: %v, %d lines of metrics", *termsFlag, after, now)
	check(t, before, after, min(*termsFlag, termsKept)*changesOfATerm)
	// The server itself begins a histogram now and then, of a dozen lines. One for each term would be hundreds.
	if now > shown+100 {
		t.Errorf("%d lines of metrics, %d before", now, shown)
	}
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
}
