package survey

import (
	"sync"
	"time"

	"github.com/regent-project/regent/pkg/server/status"
)

// past is what other shards said when they last answered. The zero value is empty. Any goroutine may call its methods
// at any time.
type past struct {
	mu     sync.Mutex
	byName map[string]status.Shard
}

// note records the answer of a shard.
func (p *past) note(answer status.Shard, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byName == nil {
		p.byName = map[string]status.Shard{}
	}
	p.byName[answer.Name] = status.Shard{Heard: now, Terms: answer.Terms}
}

// of returns a shard that does not answer, with what is remembered of it.
func (p *past) of(name, fault string) status.Shard {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.byName[name]
	out.Name, out.Fault, out.Replicas = name, fault, []status.Replica{}
	return out
}
