// Package controllers is the contract between a server and the controllers that it runs. What a controller is, how it
// is described and what its failure does is package control's; this package adds what controllers of a shard get (Deps,
// Informers, Clients), and their scopes. It has no implementation: package supervisor runs controllers, package loop
// helps to write them, and package catalog lists those of this server.
package controllers

import "github.com/regent-project/regent/pkg/election/control"

// The contract is package control's, with Deps as what constructors get. The context of Run is the term's, or the
// process's for EveryReplica controllers. Its logger has shard, replica, epoch and controller. The name of a controller
// is also the field manager of its writes.
type (
	Controller = control.Controller
	Descriptor = control.Descriptor[Deps]
	Registry   = control.Registry[Deps]
	Scope      = control.Scope
	Readier    = control.Readier
	Reporter   = control.Reporter
	Health     = control.Health
	Sweep      = control.Sweep
	Policy     = control.Policy
	Policies   = control.Policies
	Panic      = control.Panic
)

// The scopes of a shard's controllers: those of package control, and Electing.
const (
	LeaderOnly   = control.LeaderOnly
	EveryReplica = control.EveryReplica
	// Electing controllers elect the holders of Leases. They run on the leader like LeaderOnly controllers. But if
	// they elect the shard's leader itself (mode coordinated), they run in terms of a Lease of their own.
	Electing Scope = "electing"
)

// Scopes are all values of Scope.
var Scopes = []Scope{LeaderOnly, EveryReplica, Electing}

// What a controller's Run or constructor returns before its context has ended: see package control.
var (
	ErrDisabled = control.ErrDisabled
	ErrStepDown = control.ErrStepDown
	ErrExit     = control.ErrExit
)

// What the failure of a controller does: see package control.
const (
	Restart  = control.Restart
	StepDown = control.StepDown
	Exit     = control.Exit
)

// NewRegistry validates the descriptors and keeps them in the given order: see control.NewRegistry. Programs that embed
// the server call With of the catalog's registry to add their controllers.
func NewRegistry(descriptors ...Descriptor) (*Registry, error) {
	return control.NewRegistryOf(Scopes, descriptors...)
}
