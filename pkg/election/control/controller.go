package control

import (
	"cmp"
	"context"
	"time"
)

// Controller does one job while Run runs. Each value is run once: every term constructs its controllers anew.
type Controller interface {
	// Run works until ctx ends. It returns only when everything that it started has ended: goroutines are joined,
	// event handlers removed, queues shut down. Then it returns nil or ctx's error. If Run returns earlier, the
	// controller cannot go on: ErrDisabled, ErrStepDown, ErrExit and Policy say what happens then.
	//
	// ctx is the term's, or the process's for EveryReplica controllers. Its logger has the name of the controller,
	// and what the logger of whoever runs the set has.
	Run(ctx context.Context) error
}

// Func is a Controller that consists of its Run.
type Func func(context.Context) error

// Run implements Controller.
func (f Func) Run(ctx context.Context) error { return f(ctx) }

// Readier is a Controller for which others may wait: controllers that name it in Descriptor.Needs start when it is
// ready.
type Readier interface {
	// Ready returns a channel that is closed when what the other controllers need is there. The channel stays
	// closed.
	Ready() <-chan struct{}
}

// Scope names the controllers of a registry that run together: on which replicas, and when. A program may have scopes
// of its own (NewRegistryOf).
type Scope string

const (
	// LeaderOnly controllers run in a term, on the replica that leads. It is the default.
	LeaderOnly Scope = ""
	// EveryReplica controllers run on each replica while its process serves. They get no fencing token.
	EveryReplica Scope = "every-replica"
)

// String returns the scope's name in logs.
func (s Scope) String() string { return cmp.Or(string(s), "leader-only") }

// Descriptor describes a controller whose constructor gets a D.
type Descriptor[D any] struct {
	// Name is a DNS label, unique in a registry. Logs and metrics show it.
	Name string
	// Scope says where the controller runs.
	Scope Scope
	// Needs names controllers of the same scope that must be ready before this one starts (see Readier).
	Needs []string
	// StallDeadline is how long a Reporter may hold work and finish none of it before it counts as stalled. After
	// twice as long it has failed. 0 stands for a minute, a negative value for never.
	StallDeadline time.Duration
	// New constructs the controller, once for each term and again for each restart. It must not start goroutines or
	// register handlers: Run does that, and undoes it. ctx ends when Run's does. An error from New is treated like
	// an early return of Run.
	New func(ctx context.Context, deps D) (Controller, error)
}
