package e2e

import (
	"context"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/regent-project/regent/test/e2e/harness"
	"github.com/regent-project/regent/test/e2e/history"
)

var (
	roundsFlag = flag.Int("rounds", 50, "how often a leader is paused in TestAPausedLeaderWritesNothingAfterItsTerm; make long-scenarios: 200")
	seedFlag   = flag.Uint64("seed", 0, "the seed of random scenarios; 0 is any")
)

// leasesIn is what the key of a Lease ends with, but for its name, and leaseOf is the end of that of the election.
const (
	leasesIn = "system:admin/kube-system/"
	leaseOf  = leasesIn + harness.LeaseName
)

// I2 and I3, as etcd's own history has them: a leader is paused in the middle of its writes, of every kind, and another
// leads; then it goes on. None of what it had under way, whatever it had checked before, is committed.
// It is slow because there are many rounds: the moment at which a pause would do harm is short, and comes by chance.
func TestAPausedLeaderWritesNothingAfterItsTerm(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			rounds := *roundsFlag
			if mode != harness.Lease {
				rounds = max(rounds/10, 20) // the fence knows no modes
			}
			judgePaused(t, mode, 1, rounds)
		})
	}
	t.Run("ranges", func(t *testing.T) {
		t.Parallel()
		judgePaused(t, harness.ByPresence, rangesOfThem, max(*roundsFlag/10, 20))
	})
}

func judgePaused(t *testing.T, mode string, ranges, rounds int) {
	t.Helper()
	events, refused := pauseLeaders(t, mode, "fenced", ranges, rounds)
	spans := history.Terms(events, leaseOf)
	stale, backwards := history.Stale(events, spans), history.Backwards(events, spans)
	t.Logf("%d rounds, %d terms, %d changes: %d stale, %.0f refused", rounds, len(spans), len(events), len(stale), refused)
	if refused == 0 {
		t.Error("no write was refused: this scenario shows nothing")
	}
	if len(stale) > 0 || len(backwards) > 0 {
		t.Errorf("writes outside of their terms: %q\nwrites of terms that went back: %q", stale, backwards)
	}
	if twice := history.Twice(spans); len(twice) > 0 || len(spans) < rounds {
		t.Errorf("%d terms in %d rounds, these came twice: %q", len(spans), rounds, twice)
	}
}

// The same without tokens, as it is everywhere else: stale writes do commit, so the test above can fail.
func TestWithoutFencingAPausedLeaderDoesWriteAfterItsTerm(t *testing.T) {
	t.Parallel()                     // most of it is waiting
	rounds := max(*roundsFlag/5, 20) // fewer might show nothing
	events, _ := pauseLeaders(t, harness.Lease, "unfenced", 1, rounds)
	stale := history.Stale(events, history.Terms(events, leaseOf))
	t.Logf("%d rounds, %d changes: %d stale", rounds, len(events), len(stale))
	if len(stale) == 0 {
		t.Error("no stale write: this scenario shows nothing")
	}
}

// pausing are the ways to pause a replica, each with its end.
var pausing = []struct {
	name          string
	pause, resume func(*paused)
}{
	{"the process is stopped",
		func(p *paused) { p.replica.Signal(syscall.SIGSTOP) }, func(p *paused) { p.replica.Signal(syscall.SIGCONT) }},
	{"its requests to etcd are held up on the way", // after every check that it could make
		func(p *paused) { p.way.Stall() }, func(p *paused) { p.way.Resume() }},
}

// deposing are the ways to have another lead, and in mode coordinated another elect: the one that is paused may have
// done both.
var deposing = []struct {
	name   string
	depose func(ctx context.Context, leases coordinationclient.LeaseInterface, name string) error
}{
	{"the holder is cleared", func(ctx context.Context, leases coordinationclient.LeaseInterface, name string) error {
		_, err := leases.Patch(ctx, name, types.MergePatchType, []byte(`{"spec": {"holderIdentity": ""}}`), metav1.PatchOptions{})
		return err
	}},
	{"the Lease is deleted", func(ctx context.Context, leases coordinationclient.LeaseInterface, name string) error {
		return leases.Delete(ctx, name, metav1.DeleteOptions{})
	}},
}

// persist tries until it succeeds, or there is nothing to do it to: a replica that was paused a moment ago may have to
// reconnect to etcd.
func persist(t *testing.T, what string, do func(context.Context) error) {
	t.Helper()
	harness.Eventually(t, what, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := do(ctx)
		return err == nil || apierrors.IsNotFound(err)
	})
}

// paused is a replica that can be paused.
type paused struct {
	replica *harness.Replica
	way     *harness.Way
}

// leads are the names of the Leases that it holds, of those of that many ranges, as another replica reads them: with
// one range that is the election's, whoever holds it.
func (p *paused) leads(t *testing.T, by *paused, ranges int) (names []string) {
	t.Helper()
	if ranges == 1 {
		return harness.LeasesOf(ranges)
	}
	for _, name := range harness.LeasesOf(ranges) {
		persist(t, "read Lease "+name, func(ctx context.Context) error {
			lease, err := by.replica.Leases().Get(ctx, name, metav1.GetOptions{})
			if err == nil && strings.HasPrefix(harness.Holder(lease), replicaOf(p.replica)+"_") {
				names = append(names, name)
			}
			return err
		})
	}
	return names
}

// pauseLeaders pauses one leader after the other, and returns etcd's history of it, and how many writes were refused.
// With ranges a leader is who leads more of them.
func pauseLeaders(t *testing.T, mode, writer string, ranges, rounds int) (events []history.Event, refused float64) {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-seed=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	etcd := harness.StartEtcd(t)
	recorder := history.Record(t, etcd.Client(t), "/registry")
	shard := harness.NewShard("")
	// No term is to end for want of a renewal; a fenced replica may campaign again after a retry period.
	shard.Binary, shard.Timings = harness.Program(t, "faulty"), harness.Timings{Lease: 15 * time.Second, Renew: 10 * time.Second, Retry: 100 * time.Millisecond}
	shard.Mode = mode
	shard.Args = []string{"--writer=" + writer, "--fencing=" + map[string]string{"fenced": "enforce", "unfenced": "warn"}[writer]}
	if ranges > 1 {
		shard.Args = append(shard.Args, harness.DividedInto(ranges), writerOfRanges(ranges))
	}
	var all []*paused
	for _, name := range []string{"a", "b"} {
		way := etcd.Way(t)
		all = append(all, &paused{shard.Start(t, name, "--etcd-servers="+way.URL), way})
	}
	leader, other := all[0], all[1]
	term := map[string]string{} // by Lease
	for _, name := range harness.LeasesOf(ranges) {
		term[name] = recorder.NextTerm(t, leasesIn+name, "")
	}
	isFirst := func() bool { return len(leader.leads(t, other, ranges)) >= ranges/2 }
	if ranges == 1 {
		first, _ := harness.Leader(t, leader.replica, other.replica)
		isFirst = func() bool { return first == leader.replica }
	}
	if !isFirst() {
		leader, other = other, leader
	}
	for range rounds {
		how, deposed := pausing[random.IntN(len(pausing))], deposing[random.IntN(len(deposing))]
		time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond) // somewhere in its writes
		how.pause(leader)
		led := leader.leads(t, other, ranges)
		if len(led) == 0 {
			t.Fatalf("%s leads nothing", leader.replica.Name())
		}
		names := led
		if mode == harness.Coordinated {
			names = append(names, harness.ElectionsName)
			// As whoever sees a holder dead does it: the next who elects would wait for its answer.
			persist(t, "delete the holder's candidate", func(ctx context.Context) error {
				lease, err := other.replica.Leases().Get(ctx, harness.LeaseName, metav1.GetOptions{})
				if err != nil {
					return err
				}
				return other.replica.Candidates().Delete(ctx, harness.Holder(lease), metav1.DeleteOptions{})
			})
		}
		for _, name := range names {
			persist(t, deposed.name+": "+name, func(ctx context.Context) error {
				return deposed.depose(ctx, other.replica.Leases(), name)
			})
		}
		for _, name := range led {
			term[name] = recorder.NextTerm(t, leasesIn+name, term[name])
		}
		how.resume(leader)
		harness.Eventually(t, leader.replica.Name()+" has found that its term is over ("+how.name+", "+deposed.name+")", func() bool {
			return !slices.ContainsFunc(leader.replica.Terms(), func(t harness.Term) bool { return t.Reason == "" })
		})
		leader, other = other, leader
	}
	for _, p := range all {
		for _, cause := range []string{"deposed", "released", "deleted"} {
			refused += p.replica.MetricSum("regent_fencing_refused_total", `cause="`+cause+`"`)
		}
		if missing := p.replica.MetricSum("regent_fencing_refused_total", `cause="missing"`); missing != 0 {
			t.Errorf("%.0f writes of a leader had no token", missing)
		}
	}
	return recorder.Finish(t), refused
}
