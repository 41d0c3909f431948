package storage

import (
	"context"
	"errors"
	"fmt"
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
	resp, err := p.Interface.OptimisticPut(ctx, key, value, expected, opts)
	hasPut(ctx, resp, err, len(value))
	return resp, tooLarge(err, len(value))
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
