package storage

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/election/fence"
)

// fenced checks the tokens of writes that the guard does not see, because they never reach etcd: for instance, upstream's store
// does not write an update that changes nothing. Its success must not tell a leader whose term is over that all is well. For
// leases, fenced also tells the guard what this process writes, so that a renewal seldom makes other writes try twice.
type fenced struct {
	storage.Interface
	guard       *guard
	holdsLeases bool
}

func (f *fenced) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	err := f.Interface.Create(ctx, key, obj, out, ttl)
	if err == nil && f.holdsLeases && out != nil {
		f.guard.terms.learn(out)
	}
	return err
}

func (f *fenced) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object,
) error {
	token := fence.From(ctx)
	var decided atomic.Bool
	if !token.IsZero() {
		ctx = context.WithValue(ctx, decidedKey{}, &decided)
	}
	if f.holdsLeases {
		defer f.guard.terms.move(key)()
	}
	if err := f.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cached); err != nil {
		return err
	}
	if f.holdsLeases {
		f.guard.terms.learn(destination)
	}
	if !token.IsZero() && !decided.Load() {
		return f.guard.check(ctx, token)
	}
	return nil
}

// Delete also checks the token if the deletion has failed, because upstream turns some failures into success: a dry run of an
// object that cannot be decoded, and a deletion that finds nothing because the last finalizer has gone.
func (f *fenced) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	err := f.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
	token := fence.From(ctx)
	if err == nil || token.IsZero() || fence.IsFenced(err) {
		return err
	}
	if refused := f.guard.check(ctx, token); refused != nil {
		return refused
	}
	return err
}

// decidedKey is the context key of a flag that the guard sets when it has let a write through. A conflict does not set it:
// upstream then reads the object again, and may find that no write is needed.
type decidedKey struct{}

func noteDecided(ctx context.Context) {
	if decided, ok := ctx.Value(decidedKey{}).(*atomic.Bool); ok {
		decided.Store(true)
	}
}
