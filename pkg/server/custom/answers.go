package custom

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/kcp-dev/logicalcluster/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/premise"
)

// answers are what a source has answered. They end what depends on them when the source says something else.
type answers struct {
	mu sync.Mutex
	// used are the definitions that somebody has asked for, by cluster and resource. everywhere are those of all
	// clusters together, by resource.
	used       map[clusters.Key]*usedDefinition
	everywhere map[string]*usedEverywhere
}

type usedDefinition struct {
	by     metav1.Object
	answer *Definition
	end    context.CancelFunc
}

// usedEverywhere is what all clusters say of one resource. A change in one of them is looked at without the others.
type usedEverywhere struct {
	of     map[logicalcluster.Name]*Content
	count  map[*Content]int
	answer Everywhere
	end    context.CancelFunc
}

func newAnswers() answers {
	return answers{used: map[clusters.Key]*usedDefinition{}, everywhere: map[string]*usedEverywhere{}}
}

// show returns the definition that an object makes, or what a later state of that object has made already. The caller
// holds mu, as make may rely on.
func (s *answers) show(key clusters.Key, by metav1.Object, of schema.GroupResource, make func() (*Definition, error)) (*Definition, error) {
	before := s.used[key]
	if before != nil && !newer(by, before.by) {
		return before.answer, nil
	}
	d, err := make()
	if err != nil {
		return nil, err
	}
	revision, err := strconv.ParseInt(by.GetResourceVersion(), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("resource version of %s %s: %w", of, by.GetName(), err)
	}
	d.when = premise.Condition{Resource: of, Cluster: key.Cluster, Name: by.GetName(), Revision: revision}
	now := &usedDefinition{by: by, answer: d}
	if before != nil && before.answer.Content == d.Content && before.by.GetUID() == by.GetUID() {
		d.changed, now.end = before.answer.changed, before.end
	} else {
		s.forget(key)
		d.changed, now.end = begin()
	}
	s.used[key] = now
	return d, nil
}

// begin returns what ends, and what ends it.
func begin() ([]context.Context, context.CancelFunc) {
	changed, end := context.WithCancel(context.Background())
	return []context.Context{changed}, end
}

func newer(a, b metav1.Object) bool {
	if a == b {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err != nil || order > 0
}

// all returns what all clusters say of a resource. each calls its argument with what each cluster has. Nothing is kept
// of a resource that no cluster has, unless keep says so: otherwise whoever asks for names that nobody defines would
// fill the memory.
func (s *answers) all(resource string, keep bool, each func(set func(logicalcluster.Name, *Content))) Everywhere {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.everywhere[resource]
	if u == nil {
		u = &usedEverywhere{of: map[logicalcluster.Name]*Content{}, count: map[*Content]int{}}
		each(u.set)
		if u.show(); keep || len(u.of) > 0 {
			s.everywhere[resource] = u
		}
	}
	return u.answer
}

// refresh looks at a definition that may have changed. It does nothing with what nobody has asked for. content returns
// nil if there is none any more; mu is held then.
func (s *answers) refresh(key clusters.Key, content func() *Content) {
	s.mu.Lock()
	defer s.mu.Unlock()
	everywhere := s.everywhere[key.Name]
	if s.used[key] == nil && everywhere == nil {
		return
	}
	now := content()
	if now == nil {
		s.forget(key)
	}
	if everywhere == nil {
		return
	}
	everywhere.set(key.Cluster, now)
	if everywhere.show(); len(everywhere.of) == 0 {
		everywhere.end()
		delete(s.everywhere, key.Name)
	}
}

// forget ends the watches of a definition. The caller holds mu.
func (s *answers) forget(key clusters.Key) {
	if u := s.used[key]; u != nil {
		u.end()
		delete(s.used, key)
	}
}

// set notes what a cluster has now: nil, if it has nothing.
func (u *usedEverywhere) set(cluster logicalcluster.Name, now *Content) {
	was := u.of[cluster]
	if was == now {
		return
	}
	if was != nil {
		if u.count[was]--; u.count[was] == 0 {
			delete(u.count, was)
		}
	}
	if now == nil {
		delete(u.of, cluster)
		return
	}
	u.of[cluster] = now
	u.count[now]++
}

// show ends what was shown if it is no longer so.
func (u *usedEverywhere) show() {
	same := len(u.count) == len(u.answer.Contents) && !slices.ContainsFunc(u.answer.Contents, func(c *Content) bool { return u.count[c] == 0 })
	if same && u.end != nil {
		return
	}
	if u.end != nil {
		u.end()
	}
	contents := slices.SortedFunc(maps.Keys(u.count), func(a, b *Content) int {
		return cmp.Or(cmp.Compare(u.count[b], u.count[a]), bytes.Compare(a.hash[:], b.hash[:]))
	})
	u.answer = Everywhere{Contents: contents}
	u.answer.changed, u.end = begin()
}
