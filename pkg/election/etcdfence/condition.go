package etcdfence

import (
	"context"
	"errors"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrConditionUnmet is the error of a write whose condition does not hold. Nothing was written.
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

// Transaction is what is compared and changed beside a write, in the one transaction that makes the write.
type Transaction struct {
	// When has what must hold for anything to be changed. If it does not hold, the write's error is
	// ErrConditionUnmet. A comparison of a range has etcd read all that is in it.
	When []clientv3.Cmp
	// Then has the changes of other keys, which are no Leases.
	Then []clientv3.Op
}

type transactionKey struct{}

// WithTransaction makes the write in the context, whether a creation, an update or a deletion, a part of a larger
// transaction. The context is for one write: each that is made in it makes the other changes, too. What the context has
// already stays: all must hold, and all is changed.
func WithTransaction(ctx context.Context, t Transaction) context.Context {
	before := transactionOf(ctx)
	return context.WithValue(ctx, transactionKey{}, Transaction{slices.Concat(before.When, t.When), slices.Concat(before.Then, t.Then)})
}

func transactionOf(ctx context.Context) Transaction {
	t, _ := ctx.Value(transactionKey{}).(Transaction)
	return t
}
