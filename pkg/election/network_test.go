package election_test

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/regent-project/regent/pkg/election"
)

// network connects the Detectors of replicas in one process, without delay. The signs that it shows need not be true.
type network struct {
	mu    sync.Mutex
	peers map[string]*peer // by address
}

// newNetwork returns a network without any replica.
func newNetwork() *network { return &network{peers: map[string]*peer{}} }

// join returns the Detector of a replica of that name. Another that had the name can no longer be reached.
func (n *network) join(name string) *peer {
	p := &peer{
		network: n, name: name, sign: election.Alive, changed: make(chan struct{}),
		confirmations: make(chan election.Confirmation, 1), followers: map[election.Standby]int{},
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.peers[name] = p
	return p
}

// peer is an election.Detector.
type peer struct {
	network       *network
	name          string
	confirmations chan election.Confirmation

	mu        sync.Mutex
	sign      election.Sign
	deaf      bool // it follows nobody
	waits     bool // what it was told when it last followed somebody: see election.Follower
	since     time.Time
	said      election.Statement
	changed   chan struct{}
	followers map[election.Standby]int
}

// seem makes this replica show that sign to the others from now on.
func (p *peer) seem(sign election.Sign) {
	p.change(func() { p.sign, p.since = sign, time.Now() })
}

// die makes this replica look to the others as if its process had ended.
func (p *peer) die() {
	p.change(func() { p.deaf = true })
	p.seem(election.Dead)
}

func (p *peer) change(edit func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	edit()
	close(p.changed)
	p.changed = make(chan struct{})
}

// Contact implements election.Detector.
func (p *peer) Contact() election.Contact {
	return election.Contact{Address: p.name, Key: "key of " + p.name}
}

// Say implements election.Detector. Only a replica that seems alive is heard.
func (p *peer) Say(s election.Statement) {
	p.change(func() {
		if p.sign == election.Alive {
			p.said = s
		}
	})
}

// Confirmations implements election.Detector.
func (p *peer) Confirmations() <-chan election.Confirmation { return p.confirmations }

// Followers implements election.Detector.
func (p *peer) Followers() []election.Standby {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.followers))
}

// Follow implements election.Detector.
func (p *peer) Follow(ctx context.Context, leader election.Contact, f election.Follower) {
	p.network.mu.Lock()
	other := p.network.peers[leader.Address]
	p.network.mu.Unlock()
	p.mu.Lock()
	deaf := p.deaf
	p.waits = f.Waits
	p.mu.Unlock()
	if other == nil || deaf {
		<-ctx.Done()
		return
	}
	is := f.Is
	is.Replica = cmp.Or(is.Replica, p.name)
	other.change(func() { other.followers[is]++ })
	defer other.change(func() {
		if other.followers[is]--; other.followers[is] == 0 {
			delete(other.followers, is)
		}
	})
	answered := false
	for {
		other.mu.Lock()
		news := election.News{Sign: other.sign, Since: other.since, Said: other.said}
		changed := other.changed
		other.mu.Unlock()
		if answered = answered || news.Sign == election.Alive; news.Sign == election.Dead && !answered {
			news = election.News{} // who refuses and never answered may be anybody
		}
		f.Report(news)
		var asked <-chan time.Time
		if news.Sign == election.Alive && news.Said.Condition == election.Troubled {
			asked = time.After(time.Second)
			if f.Writes(ctx, news.Said.Holder) {
				select {
				case other.confirmations <- election.Confirmation{Standby: is, Holder: news.Said.Holder}:
				default:
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-asked: // a later beat asks again
		case <-changed:
		}
	}
}

var _ election.Detector = (*peer)(nil)
