package front

import (
	"slices"
	"strings"
	"sync"

	"github.com/kcp-dev/logicalcluster/v3"

	"github.com/regent-project/regent/pkg/clusters"
)

// place is where a logical cluster is.
type place struct {
	shard   string
	cluster logicalcluster.Name
}

// index knows which shard has which logical cluster, by name and by path. It is filled from what each shard says that
// it has. All methods may be called at any time on any goroutine.
type index struct {
	root   string // the name of the root shard
	mu     sync.RWMutex
	byName map[logicalcluster.Name]entry
	byPath map[string][]logicalcluster.Name // most have one
	// version counts the changes.
	version uint64
}

type entry struct {
	shard string
	path  string
	// deleting: the cluster is being deleted. It gives way to a new one at its path.
	deleting bool
	// isConfirmed: the Workspace at its path has the cluster, its parent's shard has said.
	isConfirmed bool
}

func newIndex(root string) *index {
	return &index{root: root, byName: map[logicalcluster.Name]entry{}, byPath: map[string][]logicalcluster.Name{}}
}

// set records a cluster of a shard. A cluster stays with the shard that had it first, also if only a snapshot says so:
// names are not used twice, and a shard that is down must not lose its users to one that claims its clusters. No shard
// but the root shard has cluster root, and system clusters are in no index.
func (x *index) set(name logicalcluster.Name, e entry) {
	if name == clusters.Root && e.shard != x.root || clusters.IsSystem(name) {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	old, ok := x.byName[name]
	if ok && old.shard != e.shard {
		return
	}
	x.version++
	e.path = strings.Clone(e.path)
	if ok && old.path != e.path {
		x.unlist(old.path, name)
	}
	e.isConfirmed = ok && old.isConfirmed && old.path == e.path
	if e.path != "" && !slices.Contains(x.byPath[e.path], name) {
		x.byPath[e.path] = append(x.byPath[e.path], name)
	}
	x.byName[name] = e
}

// moved records that a cluster has moved to another shard, as the shard says that had it. Any other shard's word counts
// for nothing.
func (x *index) moved(name logicalcluster.Name, from, to string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e, ok := x.byName[name]; ok && e.shard == from && name != clusters.Root {
		x.version++
		e.shard, e.isConfirmed = to, false
		x.byName[name] = e
	}
}

// confirm records that the Workspace at a path has the cluster that is there.
func (x *index) confirm(at place, path logicalcluster.Path) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e, ok := x.byName[at.cluster]; ok && e.shard == at.shard && e.path == path.String() {
		e.isConfirmed = true
		x.byName[at.cluster] = e
	}
}

// isConfirmed reports whether confirm was called for a cluster at its path.
func (x *index) isConfirmed(name logicalcluster.Name) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.byName[name].isConfirmed
}

// unset removes a cluster that the shard has no longer.
func (x *index) unset(name logicalcluster.Name, shard string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if old, ok := x.byName[name]; ok && old.shard == shard {
		x.version++
		delete(x.byName, name)
		x.unlist(old.path, name)
	}
}

// forget removes all clusters of a shard.
func (x *index) forget(shard string) {
	x.remove(func(_ logicalcluster.Name, e entry) bool { return e.shard == shard })
}

// replace makes a shard's clusters those. What a snapshot has of the shard, and the shard does not have, goes.
func (x *index) replace(shard string, all map[logicalcluster.Name]entry) {
	x.remove(func(name logicalcluster.Name, e entry) bool {
		_, ok := all[name]
		return e.shard == shard && !ok
	})
	for name, e := range all {
		x.set(name, e)
	}
}

// counts returns how many clusters each shard has.
func (x *index) counts() map[string]int {
	counts := map[string]int{}
	x.each(func(_ logicalcluster.Name, e entry) { counts[e.shard]++ })
	return counts
}

// atOnce is how many clusters are looked at before requests and news get their turn.
const atOnce = 1000

func (x *index) remove(which func(logicalcluster.Name, entry) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.version++
	n := 0
	for name, e := range x.byName {
		if which(name, e) {
			delete(x.byName, name)
			x.unlist(e.path, name)
		}
		if n++; n%atOnce == 0 { // Go allows changes while a map is ranged over
			x.mu.Unlock()
			x.mu.Lock()
		}
	}
}

// each calls visit with all clusters that are there all the time, and perhaps with others.
func (x *index) each(visit func(logicalcluster.Name, entry)) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := 0
	for name, e := range x.byName {
		visit(name, e)
		if n++; n%atOnce == 0 {
			x.mu.RUnlock()
			x.mu.RLock()
		}
	}
}

// changes returns a number that is another one after each change.
func (x *index) changes() uint64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.version
}

// unlist takes a cluster off a path. The caller holds mu.
func (x *index) unlist(path string, name logicalcluster.Name) {
	left := slices.DeleteFunc(x.byPath[path], func(n logicalcluster.Name) bool { return n == name })
	if len(left) == 0 {
		delete(x.byPath, path)
		return
	}
	x.byPath[path] = left
}

// touch counts as a change.
func (x *index) touch() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.version++
}

// find returns where the cluster at a path is, or that of a name. If several live ones say that they are at the path,
// it does not know: one may have lost its Workspace.
func (x *index) find(path logicalcluster.Path) (place, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if e, ok := x.byName[logicalcluster.Name(path.String())]; ok {
		return place{e.shard, logicalcluster.Name(path.String())}, true
	}
	var found logicalcluster.Name
	live := 0
	for _, name := range x.byPath[path.String()] {
		if !x.byName[name].deleting {
			live++
		}
		if found == "" || x.byName[found].deleting && !x.byName[name].deleting {
			found = name
		}
	}
	if found == "" || live > 1 {
		return place{}, false
	}
	return place{x.byName[found].shard, found}, true
}
