// Package controllers is the contract between a server and the controllers it runs: what a controller is, how it is
// described, and what it gets. Contracts only: package supervisor runs controllers, package loop helps to write them,
// package catalog lists the ones this server runs.
package controllers

import (
	"context"
	"time"
)

// Controller does one job for as long as Run lasts. One value serves one Run: every term constructs its controllers
// afresh.
type Controller interface {
	// Run works until ctx ends and returns only after everything it started has ended: goroutines joined, event
	// handlers removed, queues shut down. It returns nil or ctx's error once ctx has ended. A return before that
	// means that the controller cannot go on: see ErrDisabled, ErrStepDown, ErrExit and Policy for what follows.
	//
	// ctx is the term's (for EveryReplica controllers: the process's). Its logger carries shard, replica, epoch and
	// controller.
	Run(ctx context.Context) error
}

// Readier is a Controller that others may have to wait for: those that name it in Descriptor.Needs start after the
// channel is closed.
type Readier interface {
	// Ready is closed once what others need of this controller is there. It stays closed.
	Ready() <-chan struct{}
}

// Scope says on which replicas a controller runs.
type Scope int

const (
	// LeaderOnly controllers run in a term, on the replica that leads. It is the default.
	LeaderOnly Scope = iota
	// EveryReplica controllers run on each replica for as long as its process serves. They get no fencing token.
	EveryReplica
	// Electing controllers elect the holders of Leases. They run as LeaderOnly ones do; but where the leader is elected by them
	// itself, they run in terms of a Lease of their own.
	Electing
)

// Scopes are all of them.
var Scopes = []Scope{LeaderOnly, EveryReplica, Electing}

// String names the scope as logs do.
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

// Descriptor is the registry's entry for a controller.
type Descriptor struct {
	// Name is unique in a registry: a DNS label, used in logs and metrics and as the field manager of its writes.
	Name string
	// Scope says where it runs.
	Scope Scope
	// Needs names controllers of the same scope that must be ready first (see Readier).
	Needs []string
	// StallDeadline is how long a Reporter may hold work and get none of it done before it is stalled; after twice as
	// long it has failed. 0 stands for a minute, a negative one means never.
	StallDeadline time.Duration
	// New constructs the controller: once per term, and again for every restart. It must start no goroutine and
	// register no handler: that is Run's to do, and to undo. An error counts as an early return of Run does.
	New func(ctx context.Context, deps Deps) (Controller, error)
}
