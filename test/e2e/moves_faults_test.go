package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/regent-project/regent/test/e2e/harness"
)

// roundOfFaults is how long faults happen before all is whole again, and is judged.
const roundOfFaults = time.Minute

// I16 under everything at once: workspaces that are written to move to shards at random, by commands that are
// cancelled, interrupted and killed, while the faults of TestAnInstallationUnderRandomFaults happen. After each round
// of them each workspace is on one shard, with all that was acknowledged, and moves.
func TestWorkspacesMoveUnderRandomFaultsI16(t *testing.T) {
	t.Parallel()
	seed := drawSeed(t)
	c := newInstallationChaos(t, seed)
	var all []*moved
	for n, front := range append(c.fronts, c.fronts...)[:3] {
		u := newUsedBy(t, c.Installation, front, fmt.Sprintf("moved-%d", n))
		all = append(all, &moved{used: u, random: rand.New(rand.NewPCG(seed, uint64(n+1))), became: map[string]int{}})
	}
	faults := map[string]int{}
	// on a slow machine no move may end in a short time
	for end, more := time.Now().Add(*chaosFlag), 5; time.Now().Before(end) || ended(all) == 0 && more > 0; more-- {
		var stops []func()
		for _, m := range all {
			for _, stop := range []func(){m.writes(2), m.keepMoving()} {
				stops = append(stops, sync.OnceFunc(stop))
			}
		}
		for _, stop := range stops {
			t.Cleanup(stop) // a Fatal may be before
		}
		c.goOn(max(min(roundOfFaults, time.Until(end)), 5*time.Second), faults)
		for _, stop := range stops {
			stop()
		}
		for _, m := range all {
			m.settled()
			m.mustHaveAll()
			to := m.another()
			if out, err := c.TryRegent("cluster", "move", "root:"+m.name, "--to="+to); err != nil {
				t.Fatalf("nothing is wrong, and root:%s does not move: %v\n%s", m.name, err, out)
			}
			m.mustBeOn(to)
			m.mustHaveAll()
		}
		if t.Failed() {
			break
		}
	}
	t.Logf("faults: %v", faults)
	for _, m := range all {
		t.Logf("root:%s: moves %v, %d writes", m.name, m.became, len(m.latencies))
	}
	if ended(all) == 0 {
		t.Error("no move came to its end while faults happened: this scenario shows nothing")
	}
}

// ended is how many moves have come to their end.
func ended(all []*moved) (n int) {
	for _, m := range all {
		n += m.became["done"]
	}
	return n
}

// moved is a workspace that is moved all the time.
type moved struct {
	*used
	random *rand.Rand
	// became counts what has become of moves.
	became map[string]int
}

// keepMoving moves the workspace, again and again, until stop is called, which returns when the last move has ended.
func (m *moved) keepMoving() (stop func()) {
	ctx, cancel := context.WithCancel(m.Context())
	var moving sync.WaitGroup
	moving.Go(func() {
		for ctx.Err() == nil {
			m.became[m.moveOnce()]++
		}
	})
	return func() { cancel(); moving.Wait() }
}

// moveOnce moves the workspace to a shard at random, which may be the one that it is on, and returns what has become of
// that. One move in four is interrupted, killed or cancelled at some time.
func (m *moved) moveOnce() string {
	shards := m.i.All()
	to, what, when := shards[m.random.IntN(len(shards))].Name, m.random.IntN(12), time.Duration(m.random.IntN(1500))*time.Millisecond
	server := m.i.Root.Replicas[m.random.IntN(len(m.i.Root.Replicas))].URL
	command := func(args ...string) (end func(*syscall.Signal) (failed bool)) {
		args = append([]string{"cluster", "move", "root:" + m.name, "--timeout=20s", "--kubeconfig=" + m.i.Kubeconfig(), "--server=" + server}, args...)
		cmd := harness.Command(m.T, "regent", args...)
		var said strings.Builder
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			m.Error(err)
			return func(*syscall.Signal) bool { return true }
		}
		return func(s *syscall.Signal) bool {
			if s != nil {
				_ = cmd.Process.Signal(*s)
			}
			err := cmd.Wait()
			if err != nil && s == nil {
				m.Logf("root:%s to %s: %s", m.name, to, strings.TrimSpace(said.String()))
			}
			return err != nil
		}
	}
	end := command("--to=" + to)
	var s *syscall.Signal
	became := "done"
	if what < 3 {
		time.Sleep(when) // the moment is what is drawn: nothing is awaited
	}
	switch what {
	case 0:
		s, became = new(syscall.SIGKILL), "killed"
	case 1:
		s, became = new(syscall.SIGINT), "interrupted"
	case 2:
		became = "cancelled"
		if command("--cancel")(nil) {
			became = "not cancelled"
		}
	}
	if end(s) && became == "done" {
		became = "failed"
	}
	return became
}
