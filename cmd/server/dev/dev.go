// Package dev runs a whole shard on one machine: an etcd, several replicas, and a front that forwards clients to a ready
// replica. It is for trying Regent and for developing it: etcd, the front and kubectl go on when a replica is killed.
package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/regent-project/regent/pkg/server/etcd"
)

// ErrUsage is wrapped by errors that only other flags can mend. Nothing is left running then.
var ErrUsage = errors.New("see --help")

// Config is what Run needs beside the options.
type Config struct {
	*Options
	// Stdout gets the replicas' logs and dev's own messages, line by line. Colour says that Stdout is a terminal that shows
	// colours.
	Stdout io.Writer
	Colour bool
	// Again asks for restarts: at each value, dev starts the replicas whose process has ended. The channel may be closed.
	Again <-chan struct{}
}

// Run runs the shard until ctx ends. It returns when the replicas, then the fronts, then etcd have stopped. cfg.Options must be
// valid.
func Run(ctx context.Context, cfg Config) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if err := cfg.portsFree(); err != nil {
		return err
	}
	root, err := filepath.Abs(cfg.RootDirectory)
	if err != nil {
		return fmt.Errorf("cannot find --root-directory %q: %w", cfg.RootDirectory, err)
	}
	cfg.Options = &Options{RootDirectory: root, SecurePort: cfg.SecurePort, Replicas: cfg.Replicas, Shards: cfg.Shards, Start: cfg.Start}

	store, err := etcd.Start(ctx, etcd.Config{Directory: filepath.Join(root, "etcd")})
	if err != nil {
		if inUse := (&etcd.InUseError{}); errors.As(err, &inUse) {
			return fmt.Errorf("another `regent dev` or `regent start` runs in %s: end it first, or give another --root-directory: %w", root, err)
		}
		return err
	}
	defer store.Close()

	out := &output{to: cfg.Stdout, colour: cfg.Colour}
	deaf := &atomic.Bool{}
	shards := make([]*shard, cfg.Shards)
	for i := range shards {
		if shards[i], err = newShard(cfg, i, store.Transport(), out, deaf, fail); err != nil {
			for _, s := range shards[:i] {
				s.close()
			}
			return err
		}
	}
	// The fronts end after the replicas, so that clients see their connections end in an orderly way.
	frontCtx, stopFronts := context.WithCancel(context.WithoutCancel(ctx))
	var fronts, replicas sync.WaitGroup
	defer fronts.Wait()
	defer stopFronts()
	for _, s := range shards {
		fronts.Go(func() {
			if err := s.front.run(frontCtx, s.client); err != nil {
				fail(&fault{err})
			}
		})
		replicas.Go(func() { s.run(ctx) })
	}
	replicas.Go(func() {
		restart(ctx, cfg.Again, shards)
		deaf.Store(true)
	})
	replicas.Go(func() {
		select {
		case <-ctx.Done():
		case err := <-store.Failed():
			fail(&fault{fmt.Errorf("etcd has stopped: %w", err)})
		}
	})
	<-ctx.Done()
	out.say("Stopping %d replicas", cfg.Replicas*cfg.Shards)
	replicas.Wait()

	var f *fault
	if errors.As(context.Cause(ctx), &f) {
		return f.error
	}
	return nil
}

// fault is an error that makes dev stop by itself.
type fault struct{ error }

func (f *fault) Unwrap() error { return f.error }

// restart asks the replicas to restart at each value of again. It returns when ctx ends or again is closed.
func restart(ctx context.Context, again <-chan struct{}, shards []*shard) {
	for {
		select {
		case <-ctx.Done():
			return
		case _, more := <-again:
			if !more {
				return
			}
		}
		for _, s := range shards {
			for _, c := range s.children {
				c.startAgain()
			}
		}
	}
}
