// Package perterm runs what leads in a controller-runtime program once per term of an election: after a term has ended,
// the process stands by with warm caches and can lead again. A lost lease does not end the process.
//
// A program keeps its manager, which lives as long as the process: caches, webhooks, health checks, metrics, and what
// every replica runs. It turns off that manager's own leader election, has package leader elect, and moves the
// controllers that lead into a function:
//
//	process, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme}) // without LeaderElection
//	…
//	elector, err := leader.New(config, leader.Config{
//		Namespace: "default", Name: "example", SecretName: "example-probe",
//		Metrics: metrics.Registry, // of controller-runtime
//	})
//	…
//	warm := perterm.Options{Warm: []client.Object{&appsv1.Deployment{}}}
//	err = perterm.Add(process, elector, warm, func(m *perterm.Manager) error {
//		return (&DeploymentReconciler{Client: m.GetClient()}).SetupWithManager(m)
//	})
//	…
//	err = process.Start(ctrl.SetupSignalHandler())
//
// For each term the function gets a new manager. It is an ordinary manager.Manager, so SetupWithManager functions work
// unchanged.
//
// The manager serves controller-runtime's registry at /metrics. The election's metrics are there after
// metrics.Register(ctrlmetrics.Registry), of pkg/election/metrics and of controller-runtime's package metrics.
//
// # Moving from the manager's own election
//
//   - Namespace: take the old LeaderElectionNamespace, or the Pod's namespace if there was none. Name: take the old
//     LeaderElectionID. Then replicas of both kinds compete for one Lease during a rollout, and only one of them leads.
//   - LeaseDuration, RenewDeadline and RetryPeriod are fields of leader.Config, too. LeaderElection must be false: Add
//     returns an error otherwise.
//   - Rights: see package leader. What is new are list and watch on Leases, and those on the Secret.
//   - A lost lease does not end the process any more. What relied on that must end with the term: what a runnable
//     starts, it has to stop.
//
// # What a term has of its own, and what the process lends
//
//   - Controllers, runnables and event recorders: the term's. Names of controllers come again with each term.
//   - The client: the process's, with all that manager.Options.Client says of it. Requests belong to the term whose
//     client is asked, or from whose context they come. A program that sets Client or NewClient in Options.Configure
//     has a client of the term's own.
//   - The cache: the process's. The term's event handlers are removed at its end. An informer that a term asks for
//     first lives on with the process; Options.Warm starts those before the first term. An index is added once and
//     stays, so what it computes must not depend on the term.
//   - Connections, rate limits, scheme, RESTMapper: the process's.
//   - Metrics: controller-runtime's own live with the process, so /metrics shows terms, and a term continues the series
//     of the last. For others there is Manager.Metrics.
//   - Webhooks, health checks, metrics handlers, and runnables whose NeedLeaderElection returns false belong to the
//     manager of the process, because each replica must have them. The manager of a term refuses them, with an error
//     that says so. The manager of the process refuses what needs a leader: at Add, or, if it is added later, when it
//     starts, before it runs. It has no say in what is added when it has started: that would run on every replica.
//
// EnableWarmup of controllers does nothing: a term begins when the process leads already, with caches that are warm.
//
// # What cannot be served
//
// A kind that the account may not list, or that the server does not have, costs who asks for it, and nobody else and no
// later term. A read of the cache, or a wait for its informer, fails after controller-runtime's CacheSyncTimeout (two
// minutes, if manager.Options.Controller says nothing) with an error that names the kind. A controller that is for such
// a kind fails its term, which says so in the log and on the Lease, and others try. A read that asks the server itself
// is bounded by its context and the client only.
//
// # A share of the work for each process
//
// AddRanges is Add for processes that all lead: each a share of an election's ranges (package ranges). The function
// gets a manager for each term of each range, so several work at the same time, of the same kinds by the same cache.
// With Options.Key the event handlers of a term see only objects whose keys are of its range:
//
//	group, err := leader.NewGroup(config, cfg, 16)
//	…
//	byNamespace := perterm.Options{Key: client.Object.GetNamespace}
//	err = perterm.AddRanges(process, group, byNamespace, setUp)
//
// What a controller writes about objects of other keys is not coordinated with the leaders of these.
//
// # What it promises
//
// A runnable that fails ends the term at once, and others can lead. A term's function returns when everything of the
// term has ended (see package join, which also says what it cannot see). If a runnable is late, it is reported by its
// type, name and stack, and the elector keeps the process in quarantine meanwhile: it does not campaign until the
// runnable has ended. A panic of the function or of a runnable ends the term, and not the process: the log and the
// Lease say who panicked with what, and the log has the stack. A panic of a reconciler does not reach its runnable:
// controller-runtime recovers it, and tries the item again in the same term. With its option RecoverPanic set to false
// such a panic ends the process. If the election is fenced (Config.Fenced of packages election and leader), the writes
// of the term carry its token, and the first that is refused ends the term. So do writes by the client of the process
// with a context of the term. What has neither carries none: a clientset that the program has made by itself (make it
// of Manager.GetConfig), the process's client with context.Background(), Events of the process's recorders.
package perterm
