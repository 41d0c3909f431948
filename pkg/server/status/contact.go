package status

import (
	"fmt"
	"slices"
	"strings"
)

// lostContact is what a state of contact means, and what to do about it, as docs/FAILOVER.md has it.
type lostContact struct {
	severity Severity
	what     string
	remedy   []string
}

var lostContacts = map[string]lostContact{
	"connecting": {Notice, "is making contact with the leader", []string{"Wait some seconds. If it stays so, look at its log for why attempts fail."}},
	"silent":     {Warning, "hears nothing from the leader: it hangs, or is cut off", []string{"See who leads in a second. If nobody takes over, look at the leader's machine:", "$ regent status"}},
	"dead":       {Warning, "has seen the leader's process die", []string{"See who leads in a second. If nobody takes over, look at the Events of the Lease:", "$ regent status"}},
	"absent": {Warning, "cannot follow the leader, which gives no address for it", []string{
		"The leader runs an older version, or with --leader-failure-detection=off; or a client that is no replica took the Lease. Give all replicas the same version and flags."}},
	"unreachable": {Warning, "cannot reach the leader's probe: nothing answers there in time", []string{
		"Let replicas through to each other on --probe-port: look at --advertise-address, --probe-port, firewalls and network policies of the leader.",
		"A proxy that accepts and never answers looks the same, and so does a leader that has 256 followers."}},
	"refused": {Warning, "is refused at the leader's probe, and never reached it: another machine may have the address", []string{
		"Look at the leader's --advertise-address and --probe-port: they must lead to its own machine."}},
	"untrusted": {Warning, "finds another process at the leader's probe, or a proxy that ends TLS", []string{
		"Take the proxy away, or give the leader a --probe-port that nothing else uses."}},
	"unauthorized": {Warning, "is not let in by the leader's probe, which knows another secret: one of them uses another etcd, or one that was restored", []string{
		"Compare --etcd-servers and --etcd-prefix of both, and their encryption keys. Then restart the replicas, one after the other."}},
}

// contactIsAlive looks at the states that are not alive. A replica that is idle has nobody to follow.
func contactIsAlive(s *shardView) {
	for _, r := range s.answered {
		c := r.Election.Contact
		if c == nil || leads(r.Election) {
			continue
		}
		lost, ok := lostContacts[c.State]
		if !ok {
			continue
		}
		what := fmt.Sprintf("Standby %s %s (contact: %s)", r.Name, lost.what, c.State)
		if !c.Heard.IsZero() && !r.Observed.IsZero() {
			what += fmt.Sprintf("; it last heard of it %s ago", lasting(r.Observed.Sub(c.Heard)))
		}
		if what += "."; lost.severity == Warning && c.State != "dead" {
			what += " A crash of the leader may cost a lease duration."
		}
		remedy := append([]string{}, lost.remedy...)
		if last := len(remedy) - 1; strings.HasPrefix(remedy[last], "$ regent ") {
			remedy[last] += s.onShard()
		}
		s.add(lost.severity, r.Name, kindContact, what, remedy...)
	}
}

func leaderHasStandbys(s *shardView) {
	if len(s.leading) != 1 || s.leading[0].Election.Lease == "" {
		return
	}
	leader := s.leading[0]
	switch {
	case len(leader.Election.Standbys) > 0:
	case len(s.Replicas) > 1 && !slices.ContainsFunc(s.answered, func(r Replica) bool { return r.Election.Contact != nil }):
		// The others do not answer, or run without failure detection: then nobody tells the leader that it is
		// followed.
	case len(s.Replicas) == 1:
		s.add(Notice, leader.Name, kindSingleReplica, fmt.Sprintf("Shard %s has one replica, as far as it knows: while that is away, nobody serves.", s.Name),
			"Start a second one, on another machine and the same etcd, with --enable-leader-election.")
	default:
		s.add(Warning, leader.Name, kindNoStandbys, fmt.Sprintf("No replica follows leader %s, though the shard has %d. If it dies, nobody leads for a lease duration.", leader.Name, len(s.Replicas)),
			"See whether the others run, and in which state their contact with the leader is:",
			"$ regent status -o wide"+s.onShard(),
			"Let replicas through to each other on --probe-port.")
	}
}
