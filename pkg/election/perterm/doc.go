// Package perterm runs what leads in a controller-runtime program once per term of an election: after a term has ended, the process stands
// by with warm caches and can lead again. A lost lease does not end the process.
//
// A program keeps its manager, which lives as long as the process: caches, webhooks, health checks, metrics, and what every replica runs. It
// turns off that manager's own leader election, has package leader elect, and moves the controllers that lead into a function:
//
//	process, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme}) // without LeaderElection
//	…
//	elector, err := leader.New(config, leader.Config{
//		Namespace: "default", Name: "example", SecretName: "example-probe",
//		Metrics: metrics.Registry, // of controller-runtime
//	})
//	…
//	err = perterm.Add(process, elector, perterm.Options{Warm: []client.Object{&appsv1.Deployment{}}}, func(m *perterm.Manager) error {
//		return (&DeploymentReconciler{Client: m.GetClient()}).SetupWithManager(m)
//	})
//	…
//	err = process.Start(ctrl.SetupSignalHandler())
//
// For each term the function gets a new manager. It is an ordinary manager.Manager, so SetupWithManager functions work unchanged.
//
// The manager serves controller-runtime's registry at /metrics. An election without Metrics registers at component-base's, and its metrics would
// be missing there.
//
// # Moving from the manager's own election
//
//   - Namespace: take the old LeaderElectionNamespace, or the Pod's namespace if there was none. Name: take the old LeaderElectionID. Then replicas of
//     both kinds compete for one Lease during a rollout, and only one of them leads.
//   - LeaseDuration, RenewDeadline and RetryPeriod are fields of leader.Config, too. LeaderElection must be false: Add returns an error otherwise.
//   - Rights: see package leader. What is new are list and watch on Leases, and those on the Secret.
//   - A lost lease does not end the process any more. What relied on that must end with the term: what a runnable starts, it has to stop.
//
// # What a term has of its own, and what the process lends
//
//   - Controllers, runnables, event recorders, clients: the term's. Names of controllers come again with each term.
//   - The cache: the process's. The term's event handlers are removed at its end. An informer that a term asks for first lives on with the
//     process; Options.Warm starts those before the first term. An index is added once and stays, so what it computes must not depend on
//     the term.
//   - Connections, scheme, RESTMapper: the process's.
//   - Metrics: controller-runtime's own live with the process, so /metrics shows terms, and a term continues the series of the last. For
//     others there is Manager.Metrics.
//   - Webhooks, health checks and metrics handlers belong to the manager of the process, because each replica must answer. The manager of a
//     term refuses them, with an error that says so.
//
// # What it promises
//
// A term's function returns when everything of the term has ended (see package join, which also says what it cannot see). If a runnable is late,
// it is reported by its type, name and stack, and the elector keeps the process in quarantine meanwhile: it does not campaign until the
// runnable has ended. A panic of the function or of a runnable ends the term, and not the process: the log and the Lease say who panicked with
// what, and the log has the stack. A panic of a reconciler does not reach its runnable: controller-runtime recovers it, and tries the item again
// in the same term. With its option RecoverPanic set to false such a panic ends the process. If the election is fenced
// (Config.Fenced of packages election and leader), the writes of the term carry its token, and the first that is refused ends the term.
package perterm
