// Package clientgo has package election in the shape of client-go's k8s.io/client-go/tools/leaderelection, for programs
// that have a LeaderElectionConfig. A process then need not end when it has lost the lease. Change the import, and call
// Run again when it has returned:
//
//	elector, err := clientgo.NewLeaderElector(lec) // was leaderelection.NewLeaderElector(lec)
//	if err != nil {
//		return err
//	}
//	for ctx.Err() == nil {
//		elector.Run(ctx) // one term each; the process stands by in it until it leads
//	}
//
// A program needs these steps besides:
//
//   - OnStoppedLeading must not exit.
//   - The Role needs the verbs list and watch on Leases: client-go's elector does without. Keep get as long as a
//     replica may still have that.
//   - OnStartedLeading should return when all has stopped that it has started. If it starts things and returns early,
//     wrap it: join.Run(ctx, join.Options{}, join.Starting(func(ctx context.Context) error { … })). Otherwise the term
//     goes on, as with client-go, but nobody joins what was left behind, so that the work of two terms can run at once.
//     (An election.LeadFunc that returns early steps down instead.)
//   - For a fast failover after a crash it needs a probe, see below, and the rights on Secrets that package leader
//     lists.
//
// # What differs from client-go
//
//   - Run returns only when OnStartedLeading has returned, and OnNewLeader, too. So it can be called again, and what
//     OnStartedLeading does in two terms never runs at once. If OnStartedLeading does not return in time after its
//     context has ended (election.Config.DrainTimeout), the lease is left to expire, and Run waits.
//     NewLeaderHealthzAdaptor reports that.
//   - The order is: OnStartedLeading returns, the lease is released, OnStoppedLeading is called, Run returns.
//   - A panic of OnStartedLeading goes on in Run, when the lease was released and OnStoppedLeading was called.
//   - The holder on the Lease is "<identity>_<uuid>", another in each term. GetLeader and OnNewLeader give the
//     identity. Replicas that still use client-go see the whole, and may compete for the same Lease meanwhile.
//   - A standby watches the Lease and takes a lease that was released at once. The lock's client needs the verbs list,
//     watch, create and update. While it may not list, this process neither leads nor follows.
//   - The Identity becomes election.Config's Replica: each holder identity begins with it.
//
// # Fields of LeaderElectionConfig
//
//	LeaseDuration     honoured; it must be whole seconds, because a Lease holds those
//	RenewDeadline     honoured
//	RetryPeriod       honoured
//	Callbacks         honoured, all three, as above
//	Lock              a *resourcelock.LeaseLock, with Client, Identity, EventRecorder and Labels. Others are
//	                  refused: what makes terms safe is a compare-and-swap on the Lease, which the interface of a
//	                  lock hides
//	ReleaseOnCancel   must be true: the lease is always released, because the work has stopped by then
//	WatchDog          refused: its type knows client-go's elector only. Use NewLeaderHealthzAdaptor of this package
//	Coordinated       refused: give election.Config.Mode election.Coordinated, which makes the candidate, too
//	Name              not used: metrics have the Lease's name
//
// What else an election.Config has is set by a function that NewLeaderElector and RunOrDie take: a Detector for a fast
// failover, for example, which leader.OpenProbe makes:
//
//	probe, err := leader.OpenProbe(ctx, config, leader.Config{
//		Namespace: "default", Name: "example", SecretName: "example-probe", Replica: identity,
//	})
//	...
//	defer probe.Close()
//	elector, err := clientgo.NewLeaderElector(lec, func(cfg *election.Config) {
//		cfg.Detector, cfg.SucceedUnfenced = probe, true // see there for the risk
//	})
//
// # Fencing
//
// With election.Config.Fenced the server has to prove, before this process campaigns, that it refuses writes of terms
// that are over. Its proof, and the renewals, take a client of the lock that sends the tokens of its contexts. The
// writes of a term take the clients of ForTerm, or others whose contexts come from that of OnStartedLeading and whose
// configuration has the same wrapper:
//
//	config.Wrap(fence.Transport(fence.FromContext)) // of the lock's client
//	...
//	OnStartedLeading: func(ctx context.Context) {
//		client, err := kubernetes.NewForConfig(clientgo.ForTerm(ctx, config))
//		...
//	}
//
// New programs should begin with package leader.
//
// The lock's client should be one of its own, without a rate limit and without a timeout, so that no other request
// delays a renewal. That of resourcelock.NewFromKubeconfig has a timeout, which ends each watch of a standby after half
// the renew deadline; it then reads the Lease and watches again.
package clientgo
