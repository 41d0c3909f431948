// Package election runs a function in terms: for as long as this process holds a coordination.k8s.io Lease. After a
// term has ended, the process stands by and can lead again. Losing the lease never ends the process.
//
//	cfg := election.DefaultConfig()
//	cfg.Namespace, cfg.Name = "default", "example"
//	cfg.Client = client.CoordinationV1().Leases(cfg.Namespace)
//	elector, err := election.New(cfg)
//	if err != nil {
//		return err
//	}
//	return elector.Run(ctx, func(ctx context.Context, term election.Term) error {
//		return lead(ctx) // until ctx ends
//	})
//
// Most programs do not begin here. Package leader, below this one, makes a program lead with one call; an API server,
// too. Package clientgo takes the LeaderElectionConfig of a program that uses client-go's leaderelection. Package
// control/supervisor runs several controllers in each term, and says which of them failed or is late. Package join ends
// code that leaves goroutines behind. Package electiontest has a Lease without a server, for tests. Two packages are
// modules of their own: github.com/regent-project/regent/pkg/election/perterm is for the manager of controller-runtime,
// and .../pkg/election/etcdfence for API servers on k8s.io/apiserver whose leaders' late writes are to be refused.
//
// They come from Regent (github.com/regent-project/regent), an API server in the style of Kubernetes with many logical
// clusters, a replica of which is called a Regent server or shard here. Nobody needs it: all works with any Kubernetes
// API server, but for fencing, which takes Regent or etcdfence.
//
// # Guarantees
//
//   - Terms of one process do not overlap: a term begins only after the function of the term before it has returned. If
//     the function does not return in time, the process is quarantined: it does not campaign until the function has
//     returned.
//   - A term's context ends early. The function then has Config.DrainTimeout to stop before the lease expires for
//     others.
//   - A standby does not wait for the expiry of a lease that its holder has released, or whose holder is proved dead:
//     its lock on a file of this machine is gone (Config.ReplicasDirectory). That a process was found dead over the
//     network counts with Config.Fenced or Config.SucceedUnfenced only.
//   - A waiting standby writes nothing. It watches the Lease, and reads it once a minute.
//   - Each term has a higher epoch than all terms before it, even after the Lease was deleted. A fencing token names
//     each term.
//   - Run returns only when everything that it started has ended. It releases the lease if it can.
//
// # Limits
//
// A process that is paused, or whose clock runs slow, may write for a moment after another process has taken the lease.
// Only the storage can refuse such a write, by the term's fencing token (see package fence). If the storage does not
// check tokens, leave Config.Fenced false. Standbys then take the lease early only if the holder's process is proved
// dead, or has said that its term is over, or is found dead and both accept what Config.SucceedUnfenced risks.
// Otherwise they wait for the lease to expire.
//
// # Options together
//
// What two replicas with the same options do when the leader's process dies (its address refuses connections) or falls
// silent, and no longer writes: another one leads at once, at the lease's expiry, or never, unless an operator says
// that the leader is dead. Refused: New, and leader.New, return an error that says what contradicts what. A detector is
// what package leader makes of a secret.
//
//	mode                fence                  detector  Detection            it dies  it is silent
//	lease, coordinated  none                   none      unset, off           expiry   expiry
//	lease, coordinated  none                   one       unset, off, crash    expiry   expiry
//	lease, coordinated  none                   one       suspect              refused  refused
//	lease, coordinated  Fenced                 none      unset, off           expiry   expiry
//	lease, coordinated  Fenced                 one       unset, suspect       at once  at once
//	lease, coordinated  Fenced                 one       crash                at once  expiry
//	lease, coordinated  Fenced                 one       off                  expiry   expiry
//	lease, coordinated  SucceedUnfenced        one       unset, crash         at once  expiry
//	lease, coordinated  SucceedUnfenced        one       off, suspect         refused  refused
//	lease, coordinated  both                   one       unset, suspect       at once  at once
//	lease, coordinated  both                   one       crash                at once  expiry
//	lease, coordinated  both                   one       off                  refused  refused
//	lease, coordinated  SucceedUnfenced, both  none      any                  refused  refused
//	lease, coordinated  none, Fenced           none      crash, suspect       refused  refused
//	for-life            none, Fenced           none      unset                never    never
//	for-life            none, Fenced           one       unset, crash         never    never
//	for-life            none, Fenced           none      off, crash, suspect  refused  refused
//	for-life            none, Fenced           one       off, suspect         refused  refused
//	for-life            SucceedUnfenced, both  any       any                  refused  refused
//
// In mode for-life a process on the same machine that is dead is succeeded at once, with Config.ReplicasDirectory: a
// lock in it is a proof.
//
// # How it works
//
// client-go's leaderelection acquires and renews the lease. The Elector enters it anew for each term. This package adds
// the rest: it watches the Lease; it decides when a standby campaigns (plan) and when a leader's term ends (assess),
// both of which are pure functions; it ends a term in order (cancel, drain, join, release). A Mode says what it takes
// to keep the lease. The behaviour of client-go that makes this necessary is listed in the repository of Regent, in
// docs/CLIENT-GO.md: for example, it does not join OnStartedLeading, retries a renewal although it has read another
// holder's name, and releases before the work has stopped. The package knows nothing of controllers.
package election
