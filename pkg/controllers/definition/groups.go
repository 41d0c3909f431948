package definition

import (
	"context"
	"fmt"
	"sync"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/metadata"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// kept: the ledger of a group with so many definitions is kept for the term. That of a smaller one is made anew, which
// takes no longer than a write, as soon as the cache has all that was written.
const kept = 64

// groups are the groups of this term that are being reconciled, or whose ledgers are kept. Their keys have the name of
// the API group.
type groups struct {
	informers controllers.Informers

	mu  sync.Mutex
	all map[clusters.Key]*group

	// checked are the logical clusters of whose definitions the cache has all that was written before this term.
	checkedMu sync.Mutex
	checked   map[logicalcluster.Name]*checked
}

// group is used by one reconcile at a time.
type group struct {
	ledger *ledger
	// changed are the names of definitions at which the ledger has to look again. groups.mu guards it.
	changed sets.Set[string]
}

type checked struct {
	mu  sync.Mutex
	has bool
}

// change notes that a definition has changed. It returns false if nobody needs to know: the next one who enters the
// group makes a ledger.
func (g *groups) change(of clusters.Key, name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	in := g.all[of]
	if in != nil {
		in.changed.Insert(name)
	}
	return in != nil
}

// enter returns the ledger of a group, which knows what the cache shows. The caller leaves the group before another one
// enters it.
func (g *groups) enter(of clusters.Key) *ledger {
	g.mu.Lock()
	if g.all == nil {
		g.all = map[clusters.Key]*group{}
	}
	in := g.all[of]
	if in == nil { // from now on changes are noted, so that none is lost while the ledger is made
		in = &group{changed: sets.New[string]()}
		g.all[of] = in
	}
	changed := in.changed
	in.changed = sets.New[string]()
	g.mu.Unlock()
	if in.ledger == nil {
		in.ledger = newLedger(g.informers.Definitions.ByIndex(controllers.ByGroup, controllers.GroupValue(of.Cluster, of.Name)))
	}
	for name := range changed {
		d, _ := g.informers.Definitions.Get(clusters.Key{Cluster: of.Cluster, Name: name})
		in.ledger.show(name, d)
	}
	return in.ledger
}

// leave drops the ledger of a group, unless it is worth keeping or knows more than the cache. Of a group without
// definitions nothing is kept: its logical cluster may be gone, and a term may be long.
func (g *groups) leave(of clusters.Key) {
	g.mu.Lock()
	l := g.all[of].ledger
	if len(l.known) < kept && l.unseen.Len() == 0 {
		delete(g.all, of)
	}
	g.mu.Unlock()
	if len(l.known) == 0 {
		g.checkedMu.Lock()
		delete(g.checked, of.Cluster)
		g.checkedMu.Unlock()
	}
}

// check returns an error if the cache lacks something that leaders before this one have written in a logical cluster.
// Only leaders give names, and what this one has written the ledgers know. So it is enough to ask once.
//
// Without it a late cache could give a name away a second time: a definition that has come since might get a name that
// its older state seems to leave free.
func (g *groups) check(ctx context.Context, client metadata.Interface, cluster logicalcluster.Name) error {
	g.checkedMu.Lock()
	if g.checked == nil {
		g.checked = map[logicalcluster.Name]*checked{}
	}
	c := g.checked[cluster]
	if c == nil {
		c = &checked{}
		g.checked[cluster] = c
	}
	g.checkedMu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.has {
		return nil
	}
	if _, err := g.informers.LiveCustomResources(ctx, client, cluster); err != nil {
		return fmt.Errorf("what has been named before: %w", err)
	}
	c.has = true
	return nil
}
