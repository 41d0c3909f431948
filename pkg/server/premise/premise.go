// Package premise carries what admission has decided a creation by to storage, which compares it in the transaction of
// the creation.
package premise

import (
	"context"
	"slices"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Condition is that an object without a namespace has not changed since some revision.
type Condition struct {
	Resource schema.GroupResource
	Cluster  logicalcluster.Name
	Name     string
	// Revision is the object's resource version. 0: there is no such object.
	Revision int64
}

// Premises are what the creation of one request rests on: a condition for each object that admission has looked at.
type Premises struct{ all []premise }

type premise struct {
	when  Condition
	again func(context.Context) (revision int64, err error)
}

type key struct{}

// With returns a context for one request that may create an object. Admission can decide by what is in memory, and say
// with Set what it has decided by.
func With(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, &Premises{}) }

// From returns the premises of a request. Nil: its context is not of With.
func From(ctx context.Context) *Premises {
	p, _ := ctx.Value(key{}).(*Premises)
	return p
}

// Set makes the creation in a context of With commit only if the condition holds. If it does not, again is called: it
// decides anew by what is stored, and returns the revision by which it has decided, at which the creation is tried
// again, or the error with which it ends. There is one condition for each object, and all must hold. In other contexts
// Set does nothing. Only the goroutine that makes the request may call it.
func Set(ctx context.Context, when Condition, again func(context.Context) (revision int64, err error)) {
	p := From(ctx)
	if p == nil {
		return
	}
	p.all = slices.DeleteFunc(p.all, func(other premise) bool {
		return other.when.Resource == when.Resource && other.when.Cluster == when.Cluster && other.when.Name == when.Name
	})
	p.all = append(p.all, premise{when, again})
}

// Conditions returns what must hold.
func (p *Premises) Conditions() (all []Condition) {
	for _, one := range p.all {
		all = append(all, one.when)
	}
	return all
}

// DecideAgain decides anew about each object, and reports whether one is of another revision now. The error is that
// with which the creation ends.
func (p *Premises) DecideAgain(ctx context.Context) (changed bool, err error) {
	for i := range p.all {
		revision, err := p.all[i].again(ctx)
		if err != nil {
			return false, err
		}
		changed = changed || revision != p.all[i].when.Revision
		p.all[i].when.Revision = revision
	}
	return changed, nil
}
