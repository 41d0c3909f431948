package definition

import (
	"cmp"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/regent-project/regent/pkg/clusters"
)

// holder is who has names of a group without a definition: a bound resource.
type holder struct {
	who   string
	names *apiextensionsv1.CustomResourceDefinitionNames
}

// hold notes who has names of the group beside its definitions.
func (l *ledger) hold(bound []holder) {
	var changed []claim
	for _, h := range bound {
		changed = append(changed, l.taken.add(h.names)...)
	}
	for _, h := range l.bound {
		changed = append(changed, l.taken.remove(h.names)...)
	}
	l.bound = bound
	l.reopen(changed)
}

// who returns who has a name, for messages.
func (l *ledger) who(c claim) string {
	for _, h := range l.bound {
		if _, has := claimsOf(h.names)[c]; has {
			return h.who
		}
	}
	for _, d := range l.known {
		if _, has := claimsOf(&d.Status.AcceptedNames)[c]; has {
			return "CustomResourceDefinition " + d.Name
		}
	}
	return "another definition of the group"
}

// conflicts returns which of the names somebody has, and who.
func (l *ledger) conflicts(names *apiextensionsv1.CustomResourceDefinitionNames) (all []string) {
	var taken []claim
	for c := range claimsOf(names) {
		if l.taken[c] > 0 {
			taken = append(taken, c)
		}
	}
	slices.SortFunc(taken, func(a, b claim) int {
		return cmp.Or(cmp.Compare(fmt.Sprint(a.kind), fmt.Sprint(b.kind)), cmp.Compare(a.name, b.name))
	})
	for _, c := range taken {
		all = append(all, fmt.Sprintf("%q is in use by %s", c.name, l.who(c)))
	}
	return all
}

// holders returns who has bound names of a group, except for one binding. It is not ok if the cache lacks a schema, or
// is behind what was written.
func (c *controller) holders(of clusters.Key, except string) (all []holder, ok bool) {
	ok = true
	for _, b := range c.informers.APIBindings.List(of.Cluster) {
		ok = ok && !c.behind(b)
		for n := range b.Status.BoundResources {
			r := &b.Status.BoundResources[n]
			if r.Group != of.Name || b.Name == except {
				continue
			}
			s, there := c.informers.BoundSchema(r)
			if !there {
				ok = false
				continue
			}
			all = append(all, holder{"APIBinding " + b.Name, &s.Spec.Names})
		}
	}
	return all, ok
}
