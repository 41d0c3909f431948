package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/test/e2e/harness"
	"github.com/regent-project/regent/test/e2e/history"
)

var chaosFlag = flag.Duration("chaos", 8*time.Second, "how long faults happen in each mode of TestTermsNeverGoBackWhateverHappens")

// I2 and I3 under everything at once: three replicas whose leader writes all the time are killed, stopped, cut off and
// asked to step down, and suspected on the slightest silence, where the mode allows it; their Lease is stolen, cleared
// and deleted, their etcd is killed. Then etcd's history has no write outside of its term, no object whose terms go
// back, and a fenced register explains whatever its writers and readers were told. In each mode, in a shard whose
// replicas have all of them, and in one whose replicas lead a share of its ranges each (I17).
func TestTermsNeverGoBackWhateverHappens(t *testing.T) {
	t.Parallel()
	for name, of := range map[string][]string{
		modes[0]: modes[:1], modes[1]: modes[1:2], modes[2]: modes[2:3], modes[3]: modes[3:], "mixed": modes,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			goThrough(t, 1, of)
		})
	}
	t.Run("ranges", func(t *testing.T) {
		t.Parallel()
		goThrough(t, rangesOfThem, []string{harness.ByPresence})
	})
}

// drawSeed returns what the faults of a test are drawn by, and logs it.
func drawSeed(t *testing.T) uint64 {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-seed=%d -chaos=%v", seed, *chaosFlag)
	return seed
}

// goThrough is that, for replicas of these modes in turn, of a shard with so many ranges.
func goThrough(t *testing.T, ranges int, modes []string) {
	seed := drawSeed(t)
	c := newChaos(t, seed, ranges, modes)
	stopReading := c.read(t)
	done := map[string]int{}
	for deadline := time.Now().Add(*chaosFlag); time.Now().Before(deadline); {
		done[c.step(t)]++
		time.Sleep(time.Duration(50+c.random.IntN(700)) * time.Millisecond)
	}
	c.heal(t)
	reads := stopReading()
	for _, v := range c.victims {
		v.replica.Signal(syscall.SIGTERM)
	}
	for _, v := range c.victims {
		if code := v.replica.Wait(); code != 0 {
			t.Errorf("%s ended with %d", v.replica.Name(), code)
		}
	}
	events := c.recorder.Finish(t)
	spans := history.Terms(events, leaseOf)
	stale, backwards, twice := history.Stale(events, spans), history.Backwards(events, spans), history.Twice(spans)
	t.Logf("%v: %d terms, %d changes: %d stale", done, len(spans), len(events), len(stale))
	if len(stale)+len(backwards)+len(twice) > 0 {
		t.Errorf("writes outside of their terms: %q\nwrites of terms that went back: %q\nterms that came twice: %q", stale, backwards, twice)
	}
	checked, err := history.Check(events, leaseOf, c.writes(t), reads)
	t.Logf("%d operations on registers, %d of them reads", checked, len(reads))
	if err != nil {
		t.Error(err)
	}
	if checked == 0 || len(spans) < 2 {
		t.Errorf("%d operations in %d terms: this scenario shows nothing", checked, len(spans))
	}
}

// victim is a replica, and what is done to it.
type victim struct {
	replica *harness.Replica
	way     *harness.Way
	record  string
	leases  coordinationclient.LeaseInterface
	root    kubernetes.Interface
	// held is how to undo what was done to it; nil if it is whole.
	held func(t *testing.T)
}

// chaos is a shard to which faults happen.
type chaos struct {
	random   *rand.Rand
	etcd     *harness.Etcd
	recorder *history.Recorder
	victims  []*victim
	leases   []string // the names of those under which it is led
	thefts   int
}

func newChaos(t *testing.T, seed uint64, ranges int, modes []string) *chaos {
	c := &chaos{random: rand.New(rand.NewPCG(seed, 0)), etcd: harness.StartEtcd(t), leases: harness.LeasesOf(ranges)}
	c.recorder = history.Record(t, c.etcd.Client(t), "/registry")
	shard := harness.NewShard("")
	shard.Binary, shard.OneMachine = harness.Program(t, "faulty"), slices.Contains(modes, harness.ForLife)
	if ranges > 1 {
		shard.Args = []string{harness.DividedInto(ranges), writerOfRanges(ranges)}
	}
	for i, name := range []string{"a", "b", "c"} {
		mode, detection := modes[i%len(modes)], "suspect"
		if mode == harness.ForLife {
			detection = "crash"
		}
		v := &victim{way: c.etcd.Way(t), record: filepath.Join(t.TempDir(), "record-"+name)}
		args := []string{"--etcd-servers=" + v.way.URL, "--writer=fenced", "--writer-record=" + v.record, inMode(mode),
			"--leader-failure-detection=" + detection, "--leader-failure-detection-interval=50ms"}
		v.replica = shard.Start(t, name, args...)
		v.leases, v.root = v.replica.Leases(), v.replica.Kube("root")
		c.victims = append(c.victims, v)
	}
	c.awaitWrites(t, nil)
	return c
}

// writerOfRanges has the writers of all ranges write as often as that of one leader.
func writerOfRanges(ranges int) string {
	return fmt.Sprintf("--writer-pause=%v", time.Duration(ranges)*10*time.Millisecond)
}

// awaitWrites waits until a term has written under each Lease that is not the one before.
func (c *chaos) awaitWrites(t *testing.T, before map[string]string) {
	t.Helper()
	for _, name := range c.leases {
		c.recorder.NextTerm(t, leasesIn+name, before[name])
	}
}

// leased is the name of a Lease under which the shard is led.
func (c *chaos) leased() string { return c.leases[c.random.IntN(len(c.leases))] }

// step does one thing, and returns its name.
func (c *chaos) step(t *testing.T) string {
	v := c.victims[c.random.IntN(len(c.victims))]
	what := c.random.IntN(20) // always drawn, so that a seed stands for one sequence
	if v.held != nil {
		if what < 10 {
			v.held(t)
			v.held = nil
			return "healed"
		}
		return "left alone"
	}
	switch {
	case what < 3:
		v.replica.Kill()
		v.held = func(t *testing.T) { v.replica.Again() }
		return "killed"
	case what < 7:
		v.replica.Signal(syscall.SIGSTOP)
		v.held = func(*testing.T) { v.replica.Signal(syscall.SIGCONT) }
		return "stopped"
	case what < 9:
		v.way.Cut()
		v.held = func(*testing.T) { v.way.Resume() }
		return "cut off"
	case what < 12:
		v.way.Stall()
		v.held = func(*testing.T) { v.way.Resume() }
		return "held up"
	case what < 14:
		request := v.root.Discovery().RESTClient().Post().AbsPath(routing.StepDownPath)
		if len(c.leases) > 1 {
			request.Param("range", strconv.Itoa(c.random.IntN(len(c.leases))))
		}
		attempt(func(ctx context.Context) error { return request.Do(ctx).Error() })
		return "asked to step down"
	case what < 16:
		c.thefts++
		thief := fmt.Sprintf("thief-%d", c.thefts)
		v.edit(c.leased(), func(lease *coordinationv1.Lease) {
			now := metav1.NowMicro()
			lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &thief, ptr.To[int32](1)
			lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
			lease.Spec.AcquireTime, lease.Spec.RenewTime = &now, &now
		})
		return "lease stolen"
	case what < 17:
		v.edit(c.leased(), func(lease *coordinationv1.Lease) { lease.Spec.HolderIdentity = ptr.To("") })
		return "lease cleared"
	case what < 19:
		name := c.leased()
		attempt(func(ctx context.Context) error {
			return v.leases.Delete(ctx, name, metav1.DeleteOptions{})
		})
		return "lease deleted"
	default:
		c.etcd.Kill()
		time.Sleep(time.Duration(c.random.IntN(1000)) * time.Millisecond)
		c.etcd.Start(t)
		return "etcd killed"
	}
}

// attempt asks for something that may well fail: whoever is asked may not lead, nor reach etcd.
func attempt(do func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = do(ctx)
}

func (v *victim) edit(name string, change func(*coordinationv1.Lease)) {
	attempt(func(ctx context.Context) error {
		lease, err := v.leases.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(lease)
		_, err = v.leases.Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
}

// heal ends all faults, and waits until terms that began after that have written, under each Lease.
func (c *chaos) heal(t *testing.T) {
	before := map[string]string{}
	for _, span := range history.Terms(c.recorder.Events(), leaseOf) {
		before[history.LeaseOfTerm(harness.LeaseName, span.Term)] = span.Term
	}
	for _, v := range c.victims {
		if v.held != nil {
			v.held(t)
			v.held = nil
		}
	}
	for _, v := range c.victims {
		v.replica.WaitReady()
	}
	// A leader that was cut off while its lease was stolen finds out only now, and may have said that it leads
	// until then.
	const reason = "the chaos is over"
	if len(c.leases) == 1 {
		harness.Eventually(t, "who leads is asked to step down", func() bool {
			v, _ := harness.Leader(t, c.victims[0].replica, c.victims[1].replica, c.victims[2].replica)
			return v.TryStepDown(reason) == nil
		})
	} else {
		for k := range c.leases {
			harness.Eventually(t, "who leads a range is asked to step down from it", func() bool {
				return slices.ContainsFunc(c.victims, func(v *victim) bool { return v.replica.TryStepDownFrom(k, reason) == nil })
			})
		}
	}
	c.awaitWrites(t, before)
}

// read reads the registers through all replicas until the returned function is called, which returns what was read.
func (c *chaos) read(t *testing.T) (stop func() []history.Read) {
	ctx, cancel := context.WithCancel(context.Background())
	reads := make([][]history.Read, len(c.victims))
	var reading sync.WaitGroup
	for i, v := range c.victims {
		reading.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if r, ok := v.read(ctx, c.leases[n%len(c.leases)]); ok {
					reads[i] = append(reads[i], r)
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	stop = sync.OnceValue(func() []history.Read {
		cancel()
		reading.Wait()
		return slices.Concat(reads...)
	})
	t.Cleanup(func() { stop() })
	return stop
}

// read reads the current register of the leaders under a Lease, consistently. It may get no answer.
func (v *victim) read(ctx context.Context, lease string) (history.Read, bool) {
	ctx, done := context.WithTimeout(ctx, 500*time.Millisecond)
	defer done()
	r := history.Read{Register: history.RegisterAt(time.Now(), lease), Call: time.Now()}
	cm, err := v.root.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, r.Register, metav1.GetOptions{})
	r.Return = time.Now()
	if err == nil {
		r.Value = cm.Data[history.ValueKey]
	}
	return r, err == nil || apierrors.IsNotFound(err)
}

// writes are those of the records.
func (c *chaos) writes(t *testing.T) (writes []history.Write) {
	t.Helper()
	for _, v := range c.victims {
		of, err := history.ReadRecord(v.record)
		if err != nil && !os.IsNotExist(err) { // it may never have led
			t.Fatal(err)
		}
		writes = append(writes, of...)
	}
	return writes
}
