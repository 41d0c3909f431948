package e2e

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/regent-project/regent/test/e2e/harness"
)

// I8, I10 and I11 under everything at once: replicas and fronts are killed, replicas are stopped, shards are cut from
// each other or lose their etcd, and whole shards are killed, while users create and delete workspaces, nested ones
// too, and write and read in them through fronts. Whatever a user is told must be so. Then the histories of all etcds
// have no cluster that was lost, doubled, or deleted without its Workspace.
//
// No etcd is restored from a backup meanwhile: that loses what users were told, and makes clusters come back. Those
// have scenarios of their own.
func TestAnInstallationUnderRandomFaults(t *testing.T) {
	t.Parallel()
	seed := drawSeed(t)
	c := newInstallationChaos(t, seed)
	stop := c.use(seed)
	done := map[string]int{}
	c.goOn(*chaosFlag, done)
	users := stop()
	tree := converged(t, c.until)
	acted := map[string]int{}
	for _, u := range users {
		u.check(c.fronts)
		for what, n := range u.done {
			acted[what] += n
		}
	}
	made, gone := tree.Count()
	t.Logf("%v: %d clusters were made, %d have gone; users: %v", done, made, gone, acted)
	if acted["wrote"] == 0 || made == 0 {
		t.Error("this scenario shows nothing")
	}
}

// installationChaos is an installation to which faults happen.
type installationChaos struct {
	*testing.T
	*harness.Installation
	random *rand.Rand
	fronts []*harness.Front
	parts  []*part
	until  growth
}

// part is what a fault happens to.
type part struct {
	name   string
	faults []fault
	// held is how to undo what was done to it; nil if it is whole.
	held func()
	// shard is the one that it is of; nil: of none.
	shard *harness.ShardMember
}

// fault returns how to undo it.
type fault struct {
	name string
	do   func() (undo func())
}

func newInstallationChaos(t *testing.T, seed uint64) *installationChaos {
	t.Helper()
	c := &installationChaos{T: t, Installation: harness.InstallApart(t, "eu1", "us1"), random: rand.New(rand.NewPCG(seed, 0))}
	c.until = record(t, c.Installation)
	c.fronts = []*harness.Front{c.StartFront(), c.StartFront()}
	for _, f := range c.fronts {
		f.WaitSnapshot()
		c.parts = append(c.parts, &part{name: f.Name(), faults: []fault{{"front killed", func() func() { f.Kill(); return f.Again }}}})
	}
	all := c.All()
	for n, m := range all {
		for _, r := range m.Replicas {
			c.parts = append(c.parts, &part{name: r.Name(), shard: m, faults: []fault{
				{"replica killed", func() func() { r.Kill(); return r.Again }},
				{"replica stopped", func() func() { r.Signal(syscall.SIGSTOP); return func() { r.Signal(syscall.SIGCONT) } }},
			}})
		}
		c.parts = append(c.parts, &part{name: "etcd of " + m.Name, shard: m, faults: []fault{
			{"etcd killed", func() func() { m.Etcd.Kill(); return func() { m.Etcd.Start(t) } }},
		}})
		for _, other := range all[n+1:] {
			way := c.Between(m, other)
			c.parts = append(c.parts, &part{name: m.Name + " and " + other.Name, faults: []fault{
				{"shards cut", func() func() { way.Cut(); return way.Resume }},
				{"shards silent", func() func() { way.Stall(); return way.Resume }},
			}})
		}
	}
	return c
}

// goOn has faults happen for a time, counts them, and ends them all.
func (c *installationChaos) goOn(duration time.Duration, done map[string]int) {
	c.Helper()
	for deadline := time.Now().Add(duration); time.Now().Before(deadline); {
		done[c.step()]++
		// the pace of faults: nothing is awaited
		time.Sleep(time.Duration(50+c.random.IntN(400)) * time.Millisecond)
	}
	c.heal()
}

// step does one thing, and returns its name.
func (c *installationChaos) step() string {
	// always drawn, so that a seed stands for one sequence
	p, what, which := c.parts[c.random.IntN(len(c.parts))], c.random.IntN(100), c.random.IntN(1<<16)
	switch {
	case p.held != nil && what < 60:
		p.heal()
		return "healed"
	case p.held != nil:
		return "left alone"
	case what < 3 && p.shard != nil:
		c.kill(p.shard)
		return "shard killed"
	case what < 45:
		f := p.faults[which%len(p.faults)]
		p.held = f.do()
		return f.name
	}
	return "left alone"
}

// kill kills all parts of a shard.
func (c *installationChaos) kill(m *harness.ShardMember) {
	for _, p := range c.parts {
		if p.shard == m {
			p.heal()
			p.held = p.faults[0].do()
		}
	}
}

func (p *part) heal() {
	if p.held != nil {
		p.held()
		p.held = nil
	}
}

// heal ends all faults, and waits until everything is ready.
func (c *installationChaos) heal() {
	c.Helper()
	for _, p := range c.parts {
		p.heal()
	}
	for _, m := range c.All() {
		m.WaitHeard(c.T, len(c.Others))
		m.Leader(c.T)
	}
	for _, f := range c.fronts {
		f.WaitReady()
	}
}

// use has users act until the returned function is called, which returns them.
func (c *installationChaos) use(seed uint64) (stop func() []*user) {
	const users = 4
	var all []*user
	for n := range users {
		all = append(all, newUser(c.T, fmt.Sprintf("u%d", n), rand.New(rand.NewPCG(seed, uint64(n+1))), c.fronts))
	}
	var stops []func()
	for _, u := range all {
		stops = append(stops, u.start())
	}
	return func() []*user {
		for _, stop := range stops {
			stop()
		}
		return all
	}
}
