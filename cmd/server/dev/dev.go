// Package dev runs a whole shard on one machine: an etcd, several replicas, and a front that leads clients to one that
// is ready. It is for trying Regent and for developing against it: whichever replica is killed, etcd, the front and
// kubectl live.
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

// ErrUsage is wrapped by errors that the flags are to blame for. Nothing is left running then.
var ErrUsage = errors.New("see --help")

// Config is what Run needs beside the options.
type Config struct {
	*Options
	// Stdout gets the replicas' logs, line by line, and what there is to say beside. Colour may be used if it is a
	// terminal.
	Stdout io.Writer
	Colour bool
	// Again is received from while replicas run: each value starts those anew that have ended. It may be closed.
	Again <-chan struct{}
}

// Run runs everything until ctx ends: it returns when all replicas have stopped, then the fronts, then etcd. The
// options must be valid.
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
	// The fronts end after the replicas, so that whoever is connected sees their orderly end.
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

// fault is why dev stops by itself.
type fault struct{ error }

func (f *fault) Unwrap() error { return f.error }

// restart passes on each request to start anew what has ended. It returns when there can be no more.
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
