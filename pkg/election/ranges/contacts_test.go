package ranges

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// wire connects the Detectors of processes, without delay.
type wire struct {
	mu    sync.Mutex
	nodes map[string]*node
}

func newWire() *wire { return &wire{nodes: map[string]*node{}} }

// node is the Detector of a process.
type node struct {
	of            *wire
	name          string
	confirmations chan election.Confirmation

	mu        sync.Mutex
	news      election.News
	changed   chan struct{}
	followers map[*election.Standby]bool
	follows   int // calls of Follow that run
}

func (w *wire) join(name string) *node {
	n := &node{
		of: w, name: name, confirmations: make(chan election.Confirmation, 1), news: election.News{Sign: election.Alive},
		changed: make(chan struct{}), followers: map[*election.Standby]bool{},
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[name] = n
	return n
}

// by makes a process use the Detector, and fence its writes.
func (n *node) by(cfg *election.Config) { cfg.Detector, cfg.Fenced = n, true }

// change changes what others hear of the process.
func (n *node) change(edit func(*election.News)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	edit(&n.news)
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *node) seem(sign election.Sign) {
	n.change(func(news *election.News) { news.Sign, news.Since = sign, time.Now() })
}

func (n *node) Contact() election.Contact { return election.Contact{Address: n.name, Key: n.name} }

func (n *node) Say(s election.Statement) {
	n.change(func(news *election.News) { news.Said = s })
}

func (n *node) Confirmations() <-chan election.Confirmation { return n.confirmations }

func (n *node) Followers() (all []election.Standby) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for s := range n.followers {
		all = append(all, *s)
	}
	return all
}

func (n *node) Follow(ctx context.Context, leader election.Contact, f election.Follower) {
	n.of.mu.Lock()
	other := n.of.nodes[leader.Address]
	n.of.mu.Unlock()
	n.mu.Lock()
	n.follows++
	n.mu.Unlock()
	other.mu.Lock()
	other.followers[&f.Is] = true
	other.mu.Unlock()
	defer func() {
		other.mu.Lock()
		delete(other.followers, &f.Is)
		other.mu.Unlock()
		n.mu.Lock()
		n.follows--
		n.mu.Unlock()
	}()
	for ctx.Err() == nil {
		other.mu.Lock()
		news, changed := other.news, other.changed
		other.mu.Unlock()
		f.Report(news)
		if news.Said.Condition == election.Troubled && f.Writes(ctx, news.Said.Holder) {
			select {
			case other.confirmations <- election.Confirmation{Standby: f.Is, Holder: news.Said.Holder}:
			default:
			}
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

var _ election.Detector = (*node)(nil)

// four starts four processes that lead four ranges each.
func four(t *testing.T, store *electiontest.Store) (processes []*process, nodes []*node) {
	t.Helper()
	w := newWire()
	for _, name := range []string{"a", "b", "c", "d"} {
		nodes = append(nodes, w.join(name))
		processes = append(processes, join(t, store, name, 16, nodes[len(nodes)-1].by))
	}
	time.Sleep(5*lasts + lasts/2) // once in a lease duration a process gives away what is not of its share
	if got := sizes(t, processes...); !slices.Equal(got, []int{4, 4, 4, 4}) {
		t.Fatalf("they lead %v", got)
	}
	return processes, nodes
}

// I17: when a process dies, each of its ranges has a leader at once, spread over all others, and nothing else moves.
func TestTheShareOfAProcessThatDiesIsSpreadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		processes, nodes := four(t, electiontest.NewStore("group"))
		rest := processes[1:]
		var before []map[int]time.Time
		for _, p := range rest {
			before = append(before, p.share())
		}
		for _, n := range nodes { // however many ranges there are
			if n.follows != 3 {
				t.Errorf("%s follows %d processes", n.name, n.follows)
			}
		}
		processes[0].client.Always(electiontest.Fault{Hang: true})
		processes[0].dies()
		nodes[0].seem(election.Dead)
		time.Sleep(moment)
		if got := slices.Sorted(slices.Values(sizes(t, rest...))); !slices.Equal(got, []int{5, 5, 6}) {
			t.Errorf("the others lead %v", got)
		}
		for i, p := range rest {
			after := p.share()
			for k, since := range before[i] {
				if !since.Equal(after[k]) {
					t.Errorf("%s leads range %d since %v, before since %v", p.name, k, after[k], since)
				}
			}
		}
		processes[0].client.Always(electiontest.Fault{})
		for _, p := range processes {
			p.stop()
		}
	})
}

// A process that alone cannot renew is asked for once, and all of its ranges are led by others before its presence has
// expired.
func TestTheShareOfAProcessThatAloneCannotRenewIsSpreadEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		processes, _ := four(t, electiontest.NewStore("group"))
		processes[0].client.Always(electiontest.Fault{Err: context.DeadlineExceeded})
		time.Sleep(4*retry + moment)
		if got := slices.Sorted(slices.Values(sizes(t, processes...))); !slices.Equal(got, []int{0, 5, 5, 6}) {
			t.Errorf("they lead %v", got)
		}
		processes[0].client.Always(electiontest.Fault{})
		for _, p := range processes {
			p.stop()
		}
	})
}

// A process that steps down from a range hands it to whom it names, also against the assignment.
func TestARangeIsHandedToWhomTheLeaderNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		processes, _ := four(t, electiontest.NewStore("group"))
		a, d := processes[0], processes[3]
		for k := range a.share() {
			if _, err := a.StepDown(k, "told to", "d"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(moment)
			if _, leads := d.share()[k]; !leads {
				t.Errorf("d does not lead range %d", k)
			}
			break
		}
		for _, p := range processes {
			p.stop()
		}
	})
}

// What a process leaves that stops is led by others as soon as it is released: nobody waits until its presence has
// gone.
func TestTheShareOfAProcessThatStopsIsTakenBeforeItsPresenceHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		processes, _ := four(t, electiontest.NewStore("group"))
		leaves, rest := processes[0], processes[1:]
		faults := make([]electiontest.Fault, len(leaves.share())+1)
		faults[len(faults)-1] = electiontest.Fault{Delay: retry} // the presence is released last
		leaves.client.Next(electiontest.Update, faults...)
		leaves.end(errDone)
		time.Sleep(moment)
		if got := slices.Sorted(slices.Values(sizes(t, rest...))); !slices.Equal(got, []int{5, 5, 6}) {
			t.Errorf("the others lead %v", got)
		}
		select {
		case <-leaves.ended:
			t.Error("the presence has gone already: this shows nothing")
		default:
		}
		if err := <-leaves.ended; err != errDone {
			t.Errorf("Run returned %v", err)
		}
		leaves.client.Wait()
		for _, p := range rest {
			p.stop()
		}
	})
}
