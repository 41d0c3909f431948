package etcdfence

import (
	"context"
	"path"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/election/fence"
)

// Storage returns a store that also checks the tokens of writes that the guard's client does not see, because they
// never reach etcd: for instance, upstream's store does not write an update that changes nothing. Its success must not
// tell a leader whose term is over that all is well. Handler does the same for requests, so that only who has no
// Handler needs it.
//
// If the store has Leases, prefix begins all its keys in etcd, so that a renewal seldom makes other writes try twice.
// Otherwise it is empty.
func (g *Guard) Storage(next storage.Interface, prefix string) storage.Interface {
	return &store{Interface: next, guard: g, prefix: prefix}
}

type store struct {
	storage.Interface
	guard  *Guard
	prefix string
}

func (s *store) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object,
) error {
	token := fence.From(ctx)
	var decided atomic.Bool
	if !token.IsZero() {
		ctx = withDecided(ctx, &decided)
	}
	if s.prefix != "" {
		defer s.guard.terms.move(path.Join(s.prefix, key))()
	}
	if err := s.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cached); err != nil {
		return err
	}
	if !token.IsZero() && !decided.Load() {
		return s.guard.Check(ctx)
	}
	return nil
}

// Delete also checks the token if the deletion has failed, because upstream turns some failures into success: a dry run
// of an object that cannot be decoded, and a deletion that finds nothing because the last finalizer has gone.
func (s *store) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	err := s.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
	if err == nil || fence.IsFenced(err) {
		return err
	}
	if refused := s.guard.Check(ctx); refused != nil {
		return refused
	}
	return err
}

// decidedKey is the context key of a flag that is set when a write was let through. A conflict does not set it:
// upstream then reads the object again, and may find that no write is needed.
type decidedKey struct{}

func withDecided(ctx context.Context, decided *atomic.Bool) context.Context {
	return context.WithValue(ctx, decidedKey{}, decided)
}

func noteDecided(ctx context.Context) {
	if decided, ok := ctx.Value(decidedKey{}).(*atomic.Bool); ok {
		decided.Store(true)
	}
}
