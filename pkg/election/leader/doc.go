// Package leader makes a program lead in terms, with one call. It puts together what package election needs for that: a client of
// its own for the Lease, the probe by which other replicas learn at once that this process has died, and an orderly end.
//
//	l, err := leader.New(restConfig, leader.Config{
//		Namespace: "default", Name: "example", SecretName: "example-probe",
//		SucceedUnfenced: true, // after a crash another replica leads within milliseconds, and two may work for a moment
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
//	server.AddPostStartHook("lead", func(hook genericapiserver.PostStartHookContext) error { return l.Start(hook, lead) })
//	server.AddPreShutdownHook("lead", l.Stop)
//
// # What it promises
//
//   - What package election promises: terms do not overlap in a process, losing one never ends the process, and the lease is released
//     when the work has stopped.
//   - A renewal waits for nothing else: it has connections of its own and no rate limit. A connection on which a request got no answer
//     in time is given up, so that the next renewal takes another.
//   - Standbys lead a moment after the leader has stopped or stepped down. After a crash they do so if they have a probe (Config.Secret...),
//     and if the leader's late writes are refused (Config.Fenced) or the risk of a few is accepted (Config.SucceedUnfenced), or within a
//     retry period if both run on one machine (Config.ReplicasDirectory). Otherwise they wait until the lease has expired.
//   - Run and Stop return when nothing is left of what they began, Stop at the latest after election.Config.EndTimeout.
//   - A wrong Config is an error of New that names the field. Nothing panics, also if metrics are registered twice, or beside
//     component-base/metrics/prometheus/clientgo.
//
// # Rights
//
// The account of the replicas needs these, and no others. Those on Secrets are for SecretName; mode election.ForLife takes delete on leases, too:
//
//	kind: Role
//	apiVersion: rbac.authorization.k8s.io/v1
//	rules:
//	- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [list, watch, create, update]}
//	- {apiGroups: [""], resources: [secrets], verbs: [create]}
//	- {apiGroups: [""], resources: [secrets], resourceNames: [example-probe], verbs: [get]}
//
// client-go's elector needs get, create and update. A Role that was made for it lacks list and watch.
//
// # From another elector
//
// Replicas with this package, with client-go's elector and with controller-runtime's may compete for the same Lease, so a rollout needs no pause:
// take the Lease's old name and namespace. Those of the other kind poll, as before, and are succeeded when their lease has expired.
package leader
