// Package leader makes a program lead in terms, with one call. It puts together what package election needs for that: a client of
// its own for the Lease, the probe by which other replicas learn at once that this process has died, and an orderly end.
//
//	l, err := leader.New(restConfig, leader.Config{Namespace: "default", Name: "example", SecretName: "example-probe"})
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
// On Leases of the namespace: list, watch, create, update, and delete (with election.ForLife). With SecretName, on that Secret: get,
// and create on Secrets, unless it exists.
package leader
