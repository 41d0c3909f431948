package server

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/catalog"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control"
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
	registry, err := catalog.Registry()
	if err != nil {
		t.Fatal(err)
	}
	informers := make(chan controllers.Informers, 1)
	cfg.Registry, err = registry.With(controllers.Descriptor{Name: "counted", Scope: controllers.EveryReplica, New: func(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
		informers <- deps.Informers
		return control.Func(func(ctx context.Context) error { <-ctx.Done(); return nil }), nil
	}})
	if err != nil {
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
	all := <-informers
	measure := func() footprint {
		least := leastFootprint(t)
		for _, informer := range all.All() {
			least.handlers += informer.Handlers()
		}
		if least.handlers == 0 {
			t.Error("no controller of a term follows anything")
		}
		return least
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
	before, shown := measure(), series()
	t.Logf("%d terms: %v, %d lines of metrics", warm*of, before, shown)
	for range *termsFlag {
		next(rand.IntN(of))
	}
	after, now := measure(), series()
	t.Logf("%d terms more: %v, %d lines of metrics", *termsFlag, after, now)
	// Terms of ranges follow each other faster: when there are very many, all are of the last 75 s.
	check(t, before, after, min(*termsFlag, termsKept)*changesOfATerm+max(0, *termsFlag-termsKept)*changesOfARangesTerm)
	// The server itself begins histograms, of two dozen lines for each resource in its first minute. One for each
	// term would be more.
	if now > shown+max(100, *termsFlag) {
		t.Errorf("%d lines of metrics, %d before", now, shown)
	}
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
}

// changesOfARangesTerm is what watch caches keep of one, in bytes: changes of the Lease, and of a page of the history.
const changesOfARangesTerm = 16 << 10
