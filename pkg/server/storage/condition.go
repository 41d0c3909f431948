package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kcp-dev/logicalcluster/v3"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/pkg/election/etcdfence"
)

// Condition is that an object without a namespace has not changed since some revision. Creations can depend on one: see
// WithCondition.
type Condition struct {
	Resource schema.GroupResource
	Cluster  logicalcluster.Name
	Name     string
	// Revision is the object's resource version.
	Revision int64
}

// ErrConditionUnmet is the error of a creation whose condition does not hold. Nothing was written.
var ErrConditionUnmet = etcdfence.ErrConditionUnmet

type conditionKey struct{}

// WithCondition makes creations in the context commit only if the condition holds: see etcdfence.WithCondition. Updates
// and deletions do not look at it.
func WithCondition(ctx context.Context, c Condition) context.Context {
	return context.WithValue(ctx, conditionKey{}, &c)
}

// premise is a condition that admission sets when it has decided, after the context was made.
type premise struct {
	when  Condition
	again func(context.Context) (revision int64, err error)
}

// premises are those of one request.
type premises struct{ all []premise }

type premisesKey struct{}

// WithPremises returns a context for one request that may create an object. Admission can decide by what is in memory,
// and set with SetPremise what it has decided by.
func WithPremises(ctx context.Context) context.Context {
	return context.WithValue(ctx, premisesKey{}, &premises{})
}

// HasPremises reports whether SetPremise can be called.
func HasPremises(ctx context.Context) bool {
	_, ok := ctx.Value(premisesKey{}).(*premises)
	return ok
}

// SetPremise makes the creation in a context of WithPremises commit only if the condition holds. If it does not, again
// is called: it decides anew by what is stored, and returns the revision by which it has decided, at which the creation
// is tried again, or the error with which it ends. A request has one premise for each object, and all must hold. In
// other contexts SetPremise does nothing. Only the goroutine that makes the request may call it.
func SetPremise(ctx context.Context, when Condition, again func(context.Context) (revision int64, err error)) {
	p, ok := ctx.Value(premisesKey{}).(*premises)
	if !ok {
		return
	}
	p.all = slices.DeleteFunc(p.all, func(other premise) bool {
		return other.when.Resource == when.Resource && other.when.Cluster == when.Cluster && other.when.Name == when.Name
	})
	p.all = append(p.all, premise{when, again})
}

// changed decides anew on each premise, and reports whether one is of another revision now.
func (p *premises) changed(ctx context.Context) (changed bool, err error) {
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

// key returns the key of the object that must not have changed.
func (c *Condition) key(prefix string) string {
	return prefix + resourcePrefix(c.Resource) + "/" + c.Cluster.String() + "/" + c.Name
}

// puts is above the guard. It knows the keys of conditions, and says what is too large.
type puts struct {
	kubernetes.Interface
	// prefix begins all keys.
	prefix string
}

// OptimisticPut implements all creations and updates.
func (p *puts) OptimisticPut(ctx context.Context, key string, value []byte, expected int64, opts kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	if when, ok := ctx.Value(conditionKey{}).(*Condition); ok {
		ctx = etcdfence.WithCondition(ctx, when.key(p.prefix), when.Revision)
	}
	if err := mayPut(ctx); err != nil {
		return kubernetes.PutResponse{}, err
	}
	resp, err := p.put(ctx, key, value, expected, opts)
	hasPut(ctx, resp, err, len(value))
	return resp, tooLarge(err, len(value))
}

// maxDecisions bounds how often one creation is decided about because what it rests on keeps changing.
const maxDecisions = 10

// put is OptimisticPut on the request's premises.
func (p *puts) put(ctx context.Context, key string, value []byte, expected int64, opts kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	on, ok := ctx.Value(premisesKey{}).(*premises)
	if !ok || len(on.all) == 0 || expected != 0 {
		return p.Interface.OptimisticPut(ctx, key, value, expected, opts)
	}
	for range maxDecisions {
		held := ctx
		for _, one := range on.all {
			held = etcdfence.WithCondition(held, one.when.key(p.prefix), one.when.Revision)
		}
		resp, err := p.Interface.OptimisticPut(held, key, value, expected, opts)
		if !errors.Is(err, ErrConditionUnmet) {
			return resp, err
		}
		changed, decided := on.changed(ctx)
		if decided != nil {
			return kubernetes.PutResponse{}, decided
		}
		if !changed { // it was another condition
			return resp, err
		}
	}
	return kubernetes.PutResponse{}, apierrors.NewTimeoutError(fmt.Sprintf(
		"what this creation rests on changed each of the %d times that it was decided about, and nothing was written: try again", maxDecisions), 1)
}

var _ kubernetes.Interface = (*puts)(nil)

// tooLarge says of a write that etcd does not take because of its size what whoever has made it can do. Both etcd and
// its client refuse. Neither's words would mean anything to a user, and the answer would be 500.
func tooLarge(err error, size int) error {
	refused := errors.Is(err, rpctypes.ErrRequestTooLarge) || status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max")
	if !refused {
		return err
	}
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the object takes %d bytes, which is more than storage can hold of one: make it smaller, or make several of it", size))
}
