// Package leader makes a program lead in terms, with one call. It puts together what package election needs for that: a
// client of its own for the Lease, the probe by which other replicas learn at once that this process has died, and an
// orderly end.
//
//	l, err := leader.New(restConfig, leader.Config{
//		Namespace: "default", Name: "example", SecretName: "example-probe",
//		SucceedUnfenced: true, // another leads soon after a crash; two may work at once, for a lease duration
//	})
//	if err != nil {
//		return err
//	}
//	return l.Run(ctx, func(ctx context.Context, term election.Term) error {
//		return lead(ctx) // until ctx ends; return when everything has stopped
//	})
//
// In an API server on k8s.io/apiserver, with the loopback client's configuration:
//
//	server.AddPostStartHook("lead", func(hook genericapiserver.PostStartHookContext) error {
//		return l.Start(hook, lead)
//	})
//	server.AddPreShutdownHook("lead", l.Stop)
//
// Such a server has to serve Leases, and Secrets for SecretName. An aggregated one mostly does not: see package
// etcdfence, or take the main server's configuration, without a fence.
//
// # What it promises
//
//   - What package election promises: terms do not overlap in a process, losing one never ends the process, and the
//     lease is released when the work has stopped.
//   - A renewal waits for nothing else: it has connections of its own and no rate limit. A connection on which a
//     request got no answer in time is given up, so that the next renewal takes another.
//   - Standbys lead a moment after the leader has stopped or stepped down. After a crash they do so if they have a
//     probe (Config.Secret...), and if the leader's late writes are refused (Config.Fenced) or the risk of a few is
//     accepted (Config.SucceedUnfenced), or within a retry period if both run on one machine
//     (Config.ReplicasDirectory). Otherwise they wait until the lease has expired.
//   - Run and Stop return when nothing is left of what they began, Stop at the latest after Leader.EndTimeout: 20 s
//     with the default timings. A Pod's terminationGracePeriodSeconds should be longer.
//   - A wrong Config is an error of New that names the field. Nothing panics, also if metrics are registered twice, or
//     beside component-base/metrics/prometheus/clientgo.
//
// # Rights
//
// The account of the replicas needs these, and no others. Those on Secrets are for SecretName:
//
//	kind: Role
//	apiVersion: rbac.authorization.k8s.io/v1
//	rules:
//	- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [list, watch, create, update]}
//	- {apiGroups: [""], resources: [secrets], verbs: [create]}
//	- {apiGroups: [""], resources: [secrets], resourceNames: [example-probe], verbs: [get]}
//
// Modes election.ForLife and election.ByPresence, and so a Group, take delete on leases, too, and election.Coordinated
// list, watch, create, update and delete on leasecandidates. client-go's elector needs get, create and update on
// leases: a Role that was made for it lacks list and watch, and keep get as long as a replica may still have that
// elector. The loopback client of an API server may do everything.
//
// # Health and metrics
//
// Leader.Check is for a liveness check, of which the kubelet restarts what hangs. Every replica is ready, whether it
// leads or not: do not tie readiness to it. Elector().Status() says in the process how the election is doing.
//
// Metrics are off until a line turns them on: metrics.Register(prometheus.DefaultRegisterer), or of another registry
// that the program serves. Package metrics is a module of its own, so that other programs do without it. Among the
// metrics are leader_election_master_status{name} (1 on the leader), regent_election_terms_started_total,
// regent_election_terms_ended_total by cause, and regent_election_quarantined.
//
// Log lines name the Lease and the epoch by contextual logging. cli.Run of component-base turns that off: call
// klog.EnableContextualLogging(true) in the command.
//
// # From another elector
//
// Replicas with this package, with client-go's elector and with controller-runtime's may compete for the same Lease, so
// a rollout needs no pause: take the Lease's old name and namespace. Those of the other kind poll, as before, and are
// succeeded when their lease has expired.
package leader
