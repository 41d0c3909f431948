// Command faulty is the server with controllers that misbehave beside its own, made as anyone would who embeds it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/catalog"
	"github.com/regent-project/regent/pkg/server"
	"github.com/regent-project/regent/pkg/server/format"
	"github.com/regent-project/regent/pkg/server/options"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "faulty:", err)
		os.Exit(1)
	}
}

// run takes the flags of `regent start`, and a few more. A first argument "start" is taken for what it is to regent.
func run(args []string) error {
	opts := options.New()
	flags := pflag.NewFlagSet("faulty", pflag.ContinueOnError)
	for _, set := range opts.Flags().FlagSets {
		flags.AddFlagSet(set)
	}
	names := flags.StringSlice("faults", nil, "the controllers to add, by the names of their faults")
	mended := flags.String("mended", "", "while this file exists, they work as others do; while <file>.<name> does, that one")
	stalled := flags.Duration("stall-deadline", time.Second, "the stall deadline of the controllers that are added")
	mode := flags.String("writer", "", "fenced or unfenced: add a controller that writes all the time, as leaders do, or without a token; once: one that writes when its term begins")
	record := flags.String("writer-record", "", "file for the writer's record of the register")
	pause := flags.Duration("writer-pause", 10*time.Millisecond, "how long each hand of the writer rests after a write, on average")
	formats := flags.Int("formats", 0, "the newest format of what is stored that the server reads, as a later version would; 0: that of this one")
	shutdown := flags.Duration("shutdown-timeout", 0, "the server's shutdown timeout")
	var held ballast
	held.addFlags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := opts.Validate(); err != nil {
		return err
	}
	if err := held.hold(); err != nil {
		return err
	}
	writer, err := parseWriter(*mode, *record)
	if err != nil {
		return err
	}
	registry, err := registry(*names, *mended, *stalled, writer)
	if err != nil {
		return err
	}
	cfg, err := opts.Config(registry)
	if err != nil {
		return err
	}
	cfg.ShutdownTimeout = *shutdown
	if *formats > 0 {
		cfg.Formats = format.Formats{Version: "v9.0.0", Oldest: 1, Newest: format.Format(*formats), Since: "v9.0.0"}
	}
	if writer != nil {
		writer.cfg, writer.pause = cfg, *pause
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	s, err := server.New(ctx, cfg)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// registry is the catalog's and, after it, the writer, if there is one, and the faulty ones.
func registry(names []string, mended string, stalled time.Duration, writer *writer) (*controllers.Registry, error) {
	sound, err := catalog.Registry()
	if err != nil {
		return nil, err
	}
	var more []controllers.Descriptor
	var before []string
	if writer != nil {
		more = append(more, writer.descriptor())
	}
	for _, name := range names {
		f, ok := faults[name]
		if !ok {
			return nil, fmt.Errorf("no controller %q", name)
		}
		f.mended = func() bool { return exists(mended) || exists(mended+"."+name) }
		// One after the other, or the first to fail would keep the others from starting.
		more = append(more, controllers.Descriptor{Name: name, Needs: before, StallDeadline: stalled, New: f.construct})
		before = []string{name}
	}
	return sound.With(more...)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// fault is a controller that does nothing, and that badly. A nil function is a right one.
type fault struct {
	atConstruction func() error
	whileRunning   func() error
	hangs          bool // does not heed the end of its context
	stalls         bool // holds work and gets none of it done
	slow           bool // is not ready before it is mended

	mended func() bool
	ready  chan struct{}
}

var faults = map[string]fault{
	"hangs":              {hangs: true},
	"panics":             {whileRunning: func() error { panic("so it panics") }},
	"fails":              {whileRunning: func() error { return fmt.Errorf("so it fails") }},
	"steps-down":         {whileRunning: func() error { return fmt.Errorf("so it gives up: %w", controllers.ErrStepDown) }},
	"exits":              {whileRunning: func() error { return fmt.Errorf("so it ends all: %w", controllers.ErrExit) }},
	"disabled":           {atConstruction: func() error { return fmt.Errorf("so it is off: %w", controllers.ErrDisabled) }},
	"stalls":             {stalls: true},
	"stalls-and-hangs":   {stalls: true, hangs: true},
	"starts-slowly":      {slow: true},
	"constructor-fails":  {atConstruction: func() error { return fmt.Errorf("so it cannot be made") }},
	"constructor-panics": {atConstruction: func() error { panic("so it panics when made") }},
}

func (f fault) construct(context.Context, controllers.Deps) (controllers.Controller, error) {
	if f.atConstruction != nil && !f.mended() {
		return nil, f.atConstruction()
	}
	f.ready = make(chan struct{})
	return f, nil
}

// Ready implements controllers.Readier.
func (f fault) Ready() <-chan struct{} { return f.ready }

// Report implements controllers.Reporter.
func (f fault) Report() controllers.Health {
	if f.stalls && !f.mended() {
		return controllers.Health{Pending: 1}
	}
	return controllers.Health{}
}

// Run implements controllers.Controller.
func (f fault) Run(ctx context.Context) error {
	for f.slow && !f.mended() && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	close(f.ready)
	for f.whileRunning != nil && ctx.Err() == nil {
		if !f.mended() {
			return f.whileRunning()
		}
		time.Sleep(10 * time.Millisecond)
	}
	<-ctx.Done()
	for f.hangs && !f.mended() {
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}
