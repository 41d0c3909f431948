// Package dev runs a whole shard on one machine: an etcd, several replicas, and a balancer that leads clients to a
// ready replica. Or an installation of several shards, each with an etcd of its own, and fronts. It is for trying
// Regent and for developing it: etcd, the balancer and kubectl go on when a replica or a front is killed.
package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/regent-project/regent/pkg/server/etcd"
)

// ErrUsage is wrapped by errors that only other flags can mend. Nothing is left running then.
var ErrUsage = errors.New("see --help")

// Config is what Run needs beside the options.
type Config struct {
	*Options
	// Stdout gets dev's own messages and what users need of the replicas' logs, line by line. Colour says that
	// Stdout is a terminal that shows colours.
	Stdout io.Writer
	Colour bool
	// Stderr gets a line on what is waited for while the shards start, if it is a terminal and that takes longer
	// than two seconds.
	Stderr io.Writer
	// Enters and Signals ask for restarts: at each value, dev starts the replicas and fronts whose process has
	// ended. Enters are those of a terminal, and users are told to press Enter until it is closed. Without a
	// terminal it is nil, and they are told to send SIGUSR1, of which Signals is.
	Enters  <-chan struct{}
	Signals <-chan os.Signal
}

// Run runs the shards until ctx ends. It returns when the processes, then the balancer, then the etcds have stopped.
// cfg.Options must be valid.
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
	options := *cfg.Options
	options.RootDirectory, cfg.Options = root, &options

	out := &output{to: cfg.Stdout, colour: cfg.Colour, all: cfg.Verbose, waits: cfg.Stderr}
	var stores []*etcd.Server
	stop := func() {}
	err = out.while(ctx, "Starting etcd", func(ctx context.Context) (err error) {
		stores, stop, err = startStores(ctx, cfg.Options, out)
		return err
	})
	defer stop()
	if err != nil {
		return err
	}
	s, err := newSystem(cfg, stores, out, fail)
	if err != nil {
		return err
	}
	// The balancer ends after the processes, so that clients see their connections end in an orderly way.
	balancing, stopBalancer := context.WithCancel(context.WithoutCancel(ctx))
	var balancer, all sync.WaitGroup
	defer balancer.Wait()
	defer stopBalancer()
	balancer.Go(func() {
		if err := s.balancer.run(balancing, s.client); err != nil {
			fail(&fault{err})
		}
	})
	for _, store := range stores {
		all.Go(func() {
			select {
			case <-ctx.Done():
			case err := <-store.Failed():
				fail(&fault{fmt.Errorf("etcd has stopped: %w", err)})
			}
		})
	}
	all.Go(func() { s.run(ctx) })
	<-ctx.Done()
	out.say("Stopping %d processes", len(s.children()))
	all.Wait()

	var f *fault
	if errors.As(context.Cause(ctx), &f) {
		return f.error
	}
	return nil
}

// startStores starts an etcd for each shard. The caller must call stop, also after an error. What they log is in a
// file, as with the processes.
func startStores(ctx context.Context, o *Options, out *output) (stores []*etcd.Server, stop func(), err error) {
	logs := &locked{lines: out.prefixed("etcd", filepath.Join(o.logs(), "etcd.log"), nil)}
	stop = func() {
		for _, store := range stores {
			store.Close()
		}
		logs.lines.flush()
	}
	ctx = klog.NewContext(ctx, textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(logs))))
	for n := range o.Shards {
		directory := o.shardDirectory(n)
		store, err := etcd.Start(ctx, etcd.Config{Directory: filepath.Join(directory, "etcd")})
		if inUse := (&etcd.InUseError{}); errors.As(err, &inUse) {
			err = fmt.Errorf("another `regent dev` or `regent start` runs in %s: end it first, or give another --root-directory: %w", directory, err)
		}
		if err != nil {
			return stores, stop, err
		}
		stores = append(stores, store)
	}
	return stores, stop, nil
}

// fault is an error that makes dev stop by itself.
type fault struct{ error }

func (f *fault) Unwrap() error { return f.error }
