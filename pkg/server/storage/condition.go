package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/regent-project/regent/pkg/election/etcdfence"
	"github.com/regent-project/regent/pkg/server/premise"
)

// ErrConditionUnmet is the error of a creation whose condition does not hold. Nothing was written.
var ErrConditionUnmet = etcdfence.ErrConditionUnmet

type conditionKey struct{}

// WithCondition makes creations in the context commit only if the condition holds: see etcdfence.WithCondition. Updates
// and deletions do not look at it.
func WithCondition(ctx context.Context, c premise.Condition) context.Context {
	return context.WithValue(ctx, conditionKey{}, &c)
}

// keyOf returns the key of the object that must not have changed.
func keyOf(c premise.Condition, prefix string) string {
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
	if when, ok := ctx.Value(conditionKey{}).(*premise.Condition); ok {
		ctx = etcdfence.WithCondition(ctx, keyOf(*when, p.prefix), when.Revision)
	}
	if err := mayPut(ctx); err != nil {
		return kubernetes.PutResponse{}, err
	}
	resp, err := p.put(ctx, key, value, expected, opts)
	size := bytesIn(ctx, len(value))
	hasPut(ctx, resp, err, size)
	return resp, tooLarge(err, size)
}

// maxDecisions bounds how often one creation is decided about because what it rests on keeps changing.
const maxDecisions = 10

// put is OptimisticPut on the request's premises.
func (p *puts) put(ctx context.Context, key string, value []byte, expected int64, opts kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	on := premise.From(ctx)
	if on == nil || expected != 0 {
		return p.Interface.OptimisticPut(ctx, key, value, expected, opts)
	}
	for range maxDecisions {
		held := ctx
		for _, when := range on.Conditions() {
			held = etcdfence.WithCondition(held, keyOf(when, p.prefix), when.Revision)
		}
		resp, err := p.Interface.OptimisticPut(held, key, value, expected, opts)
		if !errors.Is(err, ErrConditionUnmet) {
			return resp, err
		}
		changed, decided := on.DecideAgain(ctx)
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
