package access

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// limiting are the extras of identities that have less than their user's rights. This server cannot honour them yet,
// and refuses whoever has one: to ignore them would grant more than was meant.
var limiting = []string{"authentication.kcp.io/scopes", "authorization.kcp.io/warrant"}

// identity is who a user is in one logical cluster.
type identity struct {
	name   string
	groups []string
	// local says that the cluster itself has the user: a service account of its own, which needs nobody's leave to
	// enter.
	local bool
	// among has the groups, once somebody asks, if they are many: a review may name hundreds of thousands, of which
	// a binding names as many others.
	among map[string]struct{}
}

// fewGroups is up to how many groups a search is cheaper than a map.
const fewGroups = 16

// isIn reports whether the user is in a group.
func (i *identity) isIn(group string) bool {
	if i.among == nil && len(i.groups) <= fewGroups {
		return slices.Contains(i.groups, group)
	}
	if i.among == nil {
		i.gather()
	}
	_, is := i.among[group]
	return is
}

// gather leaves each group once.
func (i *identity) gather() {
	i.among = make(map[string]struct{}, len(i.groups))
	groups := make([]string, 0, len(i.groups)) // what u.GetGroups returns is not ours to change
	for _, g := range i.groups {
		if _, again := i.among[g]; !again {
			i.among[g] = struct{}{}
			groups = append(groups, g)
		}
	}
	i.groups = groups
}

// in returns who a user is in a cluster. A service account is known in its own cluster only. In all others it is
// anonymous, and has the groups of its cluster and of itself, to which those clusters can bind roles.
//
// A service account without a cluster is one that somebody impersonates in this cluster: no authenticator names such a
// user.
func in(cluster logicalcluster.Name, u user.Info) *identity {
	account := strings.HasPrefix(u.GetName(), serviceaccount.ServiceAccountUsernamePrefix)
	home := u.GetExtra()[clusters.IdentityClusterExtra]
	if len(home) == 0 || slices.Equal(home, []string{cluster.String()}) {
		return &identity{name: u.GetName(), groups: u.GetGroups(), local: account}
	}
	out := &identity{name: user.Anonymous, groups: []string{user.AllAuthenticated}}
	if namespace, name, err := serviceaccount.SplitUsername(u.GetName()); err == nil && len(home) == 1 {
		of := clusters.IdentityGroupPrefix + home[0]
		out.groups = append(out.groups, of, of+":"+namespace+":"+name)
	}
	return out
}

// isMaster reports whether a user is a member of system:masters, who may do everything.
func isMaster(who user.Info) bool {
	return who != nil && slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup)
}

// subjects returns what bindings may call the user.
func (i *identity) subjects() []Subject {
	if len(i.groups) > fewGroups && i.among == nil {
		i.gather()
	}
	out := make([]Subject, 0, len(i.groups)+2)
	out = append(out, Subject{rbacv1.UserKind, i.name})
	for _, g := range i.groups {
		out = append(out, Subject{rbacv1.GroupKind, g})
	}
	if namespace, name, err := serviceaccount.SplitUsername(i.name); err == nil {
		out = append(out, Subject{rbacv1.ServiceAccountKind, controllers.ServiceAccountName(namespace, name)})
	}
	return out
}

// limited returns the extra that limits an identity, if there is one.
func limited(u user.Info) (extra string, ok bool) {
	for _, key := range limiting {
		if len(u.GetExtra()[key]) > 0 {
			return key, true
		}
	}
	return "", false
}

// isOneOf reports whether the user is among the subjects of a binding. namespace is the binding's.
func (i *identity) isOneOf(subjects []rbacv1.Subject, namespace string) bool {
	for n := range subjects {
		s := &subjects[n]
		switch s.Kind {
		case rbacv1.UserKind:
			if s.Name == i.name {
				return true
			}
		case rbacv1.GroupKind:
			if i.isIn(s.Name) {
				return true
			}
		case rbacv1.ServiceAccountKind:
			if of := cmp.Or(s.Namespace, namespace); of != "" && serviceaccount.MatchesUsername(of, s.Name, i.name) {
				return true
			}
		}
	}
	return false
}
