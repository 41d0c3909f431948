// Package mcr divides the clusters of a multicluster-runtime manager between the processes that run it. Each cluster
// has one worker at a time, all processes work, and what a process leaves is spread over all others:
//
//	coordinator, err := mcr.New(config, leader.Config{
//		Namespace: "default", Name: "example", SecretName: "example-probe",
//		SucceedUnfenced: true, // what a crashed process leaves is taken over at once; see package leader
//	}, mcr.Options{})
//	…
//	manager, err := mcmanager.New(config, provider, manager.Options{}, mcmanager.WithCoordinator(coordinator))
//
// Everything else of the program stays. config is that of the server which keeps the Leases, mostly that of the
// manager.
//
// # What it does
//
// A cluster belongs to one of Options.Ranges ranges, by a hash of its name, and the ranges are led (package ranges):
// each by one process, under a Lease of its own. For each term of a range its clusters are engaged, and they are
// disengaged at its end. A process renews one Lease, however many clusters there are, and with a probe (SecretName)
// others notice its death at once.
//
// # What it promises
//
//   - Reconciles belong to terms. One begins only while this process leads the range of its cluster, its context ends
//     with the term, and a range is released when those that ran have returned. What is in a controller's queue after
//     that is dropped: the process that leads the range next gets all objects of the cluster from its own informers.
//   - One that does not return in time (leader.Config.DrainTimeout) costs its own range only: other ranges are led on.
//   - Contexts of reconciles carry the token of their term. Where a cluster's server checks tokens, as Regent does and
//     package etcdfence, give its client fence.Transport(fence.FromContext): then late writes are refused, and the
//     first that is ends the term. Set leader.Config.Fenced if the server of the Leases does, too.
//
// For the first, the reconciler of each controller is wrapped when the manager is given it. That needs controllers of
// multicluster-runtime with its own Request. Wrap that of others by Bind: otherwise the manager's Start returns an
// error that names them. What else is Aware (a runnable without a queue) has the context of Engage.
//
// What a controller does for the local cluster (EngageWithLocalCluster) is done by every process, as with
// multicluster-runtime's own coordinators: the local cluster is given to no coordinator.
//
// # What it takes
//
//   - manager.Options.LeaderElection must be false. With it only the elected process takes part, and leads all.
//   - The account needs what package leader says, and the verb delete on Leases.
//   - Options.Warm: else an informer of a cluster begins when this process first works there, and a failover takes as
//     long as the list of all its objects.
//   - A namespace for the Leases that has few others: all of them are watched.
//
// multicluster-runtime calls its interface experimental. This package is for v0.24, and is in no release yet.
package mcr
