package storage

import (
	"cmp"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Aside is what is stored of a resource and is no object: see sound.
type Aside struct {
	Resource string
	// Number is how many there are, as the resource's watch cache has seen them last; mostAside, if there are more.
	// Revision is the mod revision of the latest of them.
	Number   int
	Revision int64
}

// mostAside is how many are remembered of a resource.
const mostAside = 1000

// aside remembers what is set aside now: by its revision, because nothing else is known of it. It begins anew with each
// list of everything: when a watch cache fills, which it also does when one of these goes, and each five minutes, when
// upstream compares the cache with etcd. Until then it is told of what somebody has mended.
type aside struct {
	mu  sync.Mutex
	now map[schema.GroupResource]map[int64]struct{}
}

// anew forgets what was set aside of a resource: all of it is about to be listed.
func (a *aside) anew(resource schema.GroupResource) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.now, resource)
}

func (a *aside) add(resource schema.GroupResource, revision string) {
	at, err := strconv.ParseInt(revision, 10, 64)
	if err != nil {
		return // an object that was built in memory
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now == nil {
		a.now = map[schema.GroupResource]map[int64]struct{}{}
	}
	if a.now[resource] == nil {
		a.now[resource] = map[int64]struct{}{}
	}
	if len(a.now[resource]) < mostAside {
		a.now[resource][at] = struct{}{}
	}
}

// Aside returns what is set aside, ordered by resource.
func (c *Client) Aside() []Aside {
	c.aside.mu.Lock()
	defer c.aside.mu.Unlock()
	var all []Aside
	for resource, revisions := range c.aside.now {
		of := Aside{Resource: resource.String(), Number: len(revisions)}
		for revision := range revisions {
			of.Revision = max(of.Revision, revision)
		}
		all = append(all, of)
	}
	slices.SortFunc(all, func(a, b Aside) int { return cmp.Compare(a.Resource, b.Resource) })
	return all
}
