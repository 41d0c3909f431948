package etcdfence

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrConditionUnmet is the error of a creation whose condition does not hold. Nothing was written.
var ErrConditionUnmet = errors.New("an object that this one depends on has changed meanwhile: read it again, and decide again")

type conditionKey struct{}

// WithCondition makes creations in the context commit only if what is at an etcd key is at that revision: the
// transaction that creates an object compares it. A check before would not do, because the process may be stopped
// between the check and the creation. Updates and deletions do not look at it. Conditions that the context has already
// stay: all must hold.
func WithCondition(ctx context.Context, key string, revision int64) context.Context {
	all, _ := ctx.Value(conditionKey{}).([]clientv3.Cmp)
	when := clientv3.Compare(clientv3.ModRevision(key), "=", revision)
	return context.WithValue(ctx, conditionKey{}, append(all[:len(all):len(all)], when))
}

// conditionsOf returns what a write to a key that must be at the expected revision depends on.
func conditionsOf(ctx context.Context, expected int64) []clientv3.Cmp {
	if expected != 0 {
		return nil
	}
	all, _ := ctx.Value(conditionKey{}).([]clientv3.Cmp)
	return all
}
