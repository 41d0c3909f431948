// Package etcdfence holds the writes of any server on k8s.io/apiserver to the fencing tokens that they carry (package
// fence), in the etcd transaction that makes them. A leader that was paused, and that wakes up in the middle of its
// writes, changes nothing once another one leads, or its lease was released: not by a clock, but because etcd compares
// the Lease in that transaction.
//
// It takes three lines in a server, and no fork of anything. Between the options of etcd being applied and the server
// being made:
//
//	guard, err := etcdfence.Install(ctx, etcdfence.Config{Etcd: options.Etcd, Stored: config.RESTOptionsGetter})
//	...
//	config.BuildHandlerChainFunc = func(handler http.Handler, c *server.Config) http.Handler {
//		return server.DefaultBuildHandlerChain(guard.Handler(handler), c)
//	}
//
// From then on every store of that etcd is guarded, built-in resources and custom ones alike, and a request with the
// header Fencing-Token is held to its term: creations, updates, deletions, and what is answered without a write, such
// as a dry run. A write of a term that is over is answered with 412 and reason LeaderFenced; see fence.IsFenced.
// Requests without the header are served as ever. Without the handler no request has a token, and nothing is held.
// Package leader notices: with Config.Fenced it has the server prove that it refuses before it leads.
//
// The Lease must be in the same etcd as what is written under it. Config.Clusters is for servers that have logical
// clusters, as kcp has.
//
// # Leaders in the server
//
// An aggregated server, whose Leases are the main server's, elects by a Lease of its own: see Guard.LeaseClient. Its
// controllers write through the loopback client, with the token of their term:
//
//	leases, err := guard.LeaseClient("kube-system") // close it when the server has ended
//	...
//	l, err := leader.New(config.LoopbackClientConfig, leader.Config{
//		Namespace: "kube-system", Name: "example", Fenced: true,
//		SecretFile: "/etc/example/probe-secret", // such a server has no Secrets
//		Adjust: func(e *election.Config) { e.Client = leases },
//	})
//	...
//	server.AddPostStartHook("lead", func(hook server.PostStartHookContext) error { return l.Start(hook, lead) })
//	server.AddPreShutdownHook("lead", l.Stop) // while the server still answers
//
// In lead the clients of a term come from leader.ForTerm(ctx, config.LoopbackClientConfig, term). The loopback client's
// user is system:apiserver, for MustCarry.
//
// # Leaders outside of the server
//
// They are held, too, if the server serves Leases (coordination.k8s.io/v1) out of the same etcd: give the REST storage
// of Leases config.RESTOptionsGetter, as that of all else. They take leader.New with Fenced, or fence.Elected with
// WithoutClusters beside client-go's election. A Lease of another server, such as the main one of an aggregated server,
// is in another etcd: no transaction can compare it, so tokens of it are refused.
//
// What it does not hold: reads; what goes to another etcd (Guard.NotHeld names it, and Install logs it), or below
// another prefix of this one; requests that an aggregator passes on to other servers; whoever writes into etcd past the
// server; and stores that were made before Install.
//
// # How it gets there
//
// Upstream makes the clients of its stores in private. But each etcd3 store shows its client to a public variable of
// package k8s.io/apiserver/pkg/storage/feature when it is made. That is where this package puts the guard into it.
// Install proves that this happens, with a store of its own, and fails otherwise. Decorators of storage, transformers
// and interceptors would be simpler, and are not in the transaction.
package etcdfence
