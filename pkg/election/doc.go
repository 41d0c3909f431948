// Package election runs a function in terms: for as long as this process holds a coordination.k8s.io Lease, again and
// again, without ever ending the process.
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
// # What is promised
//
//   - In one process no term begins before the function of the term before has returned. Work that does not stop in time
//     quarantines its process: it does not campaign until the work has stopped.
//   - A term's context ends early enough that the function has Config.DrainTimeout to stop before the lease expires for others.
//   - A lease whose holder has given it up, or is known to be dead, is taken without waiting for its expiry. Until then a standby
//     writes nothing: it watches the Lease, and reads it once a minute.
//   - Each term has an epoch above those before, also after the Lease was deleted, and a fencing token that names it.
//   - Run returns only when all that it started has ended. The lease is released, if it was held and could be.
//
// # What is not
//
// A process that is paused, or whose clock runs slow, may work for a moment after another has taken the lease. Only the storage can
// refuse its writes, by the term's fencing token: see package fence. Where it does not, Config.Fenced stays
// false, and others wait for such a holder's lease to expire, unless its process is proved to be dead or says that its term is over.
//
// # How it works
//
// client-go's leaderelection acquires and renews, entered anew for each term. Around it are here: the watch of the Lease, the decision
// when a standby campaigns and when a leader's term ends (plan and assess, two pure functions), the end of a term in order (cancel,
// drain, join, release), and the modes, which say what it takes to keep the lease. docs/CLIENT-GO.md says which behaviour of
// client-go makes them necessary. The package knows leases and no controllers.
package election
