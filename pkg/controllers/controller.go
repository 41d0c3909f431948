// Package controllers is the contract between a server and the controllers that it runs: what a controller is, how it is
// described, and what it gets. It has no implementation: package supervisor runs controllers, package loop helps to write them,
// and package catalog lists those of this server.
package controllers

import (
	"context"
	"time"
)

// Controller does one job while Run runs. Each value is run once: every term constructs its controllers anew.
type Controller interface {
	// Run works until ctx ends. It returns only when everything that it started has ended: goroutines are joined, event
	// handlers removed, queues shut down. Then it returns nil or ctx's error. If Run returns earlier, the controller cannot go
	// on: ErrDisabled, ErrStepDown, ErrExit and Policy say what happens then.
	//
	// ctx is the term's, or the process's for EveryReplica controllers. Its logger has shard, replica, epoch and controller.
	Run(ctx context.Context) error
}

// Readier is a Controller for which others may wait: controllers that name it in Descriptor.Needs start when it is ready.
type Readier interface {
	// Ready returns a channel that is closed when what the other controllers need is there. The channel stays closed.
	Ready() <-chan struct{}
}

// Scope says on which replicas, and when, a controller runs.
type Scope int

const (
	// LeaderOnly controllers run in a term, on the replica that leads. It is the default.
	LeaderOnly Scope = iota
	// EveryReplica controllers run on each replica while its process serves. They get no fencing token.
	EveryReplica
	// Electing controllers elect the holders of Leases. They run on the leader like LeaderOnly controllers. But if they elect
	// the shard's leader itself (mode coordinated), they run in terms of a Lease of their own.
	Electing
)

// Scopes are all values of Scope.
var Scopes = []Scope{LeaderOnly, EveryReplica, Electing}

// String returns the scope's name in logs.
func (s Scope) String() string {
	switch s {
	case EveryReplica:
		return "every-replica"
	case Electing:
		return "electing"
	default:
		return "leader-only"
	}
}

// Descriptor describes a controller to the registry.
type Descriptor struct {
	// Name is a DNS label, unique in a registry. Logs, metrics and the field manager of the controller's writes show it.
	Name string
	// Scope says where the controller runs.
	Scope Scope
	// Needs names controllers of the same scope that must be ready before this one starts (see Readier).
	Needs []string
	// StallDeadline is how long a Reporter may hold work and finish none of it before it counts as stalled. After twice as long
	// it has failed. 0 stands for a minute, a negative value for never.
	StallDeadline time.Duration
	// New constructs the controller, once for each term and again for each restart. It must not start goroutines or register
	// handlers: Run does that, and undoes it. An error from New is treated like an early return of Run.
	New func(ctx context.Context, deps Deps) (Controller, error)
}
