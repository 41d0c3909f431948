package status

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// lostContact is what a state of contact means, and what to do about it, as docs/FAILOVER.md has it.
type lostContact struct {
	severity Severity
	what     string
	remedy   []string
}

var lostContacts = map[string]lostContact{
	"connecting": {Notice, "is making contact with the leader", []string{"Wait a few seconds. If it stays so, its log says why its attempts fail."}},
	"silent":     {Warning, "hears nothing from the leader, which hangs or is cut off", []string{"See who leads a second from now. If nobody takes over, look at the leader's machine:", "$ regent status"}},
	"dead":       {Warning, "has seen the leader's process die", []string{"See who leads a second from now. If nobody takes over, look at the Events of the Lease:", "$ regent status"}},
	"absent": {Warning, "cannot follow the leader, which gives no address for it", []string{
		"The leader runs an older version, or with --leader-failure-detection=off; or a client that is no replica took the Lease. Give all replicas the same version and flags."}},
	"unreachable": {Warning, "cannot reach the leader's probe: nothing answers there in time", []string{
		"Replicas must reach each other on --probe-port: check the leader's --advertise-address, --probe-port, firewalls and network policies.",
		"A proxy that accepts and never answers looks the same, and so does a leader that has 256 followers."}},
	"refused": {Warning, "is refused at the leader's probe, and never reached it: another machine may have the address", []string{
		"Check the leader's --advertise-address and --probe-port: they must lead to its own machine."}},
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
		if age, ok := r.findsOldLease(); ok && c.Heard.IsZero() {
			s.add(Notice, r.Name, kindContact, fmt.Sprintf("Replica %s found a lease that was last renewed %s ago, before it started, and hears nothing from its holder (contact: %s).", r.Name, lasting(age), c.State),
				fmt.Sprintf("After a restore of etcd, or an end of all replicas, this is normal: the lease expires within %d s of the replica's start. If it stays so, restart the replicas.", r.Election.Duration))
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

// findsOldLease reports whether the lease was last renewed before the replica started, by more than a lease duration,
// and how long ago. It compares two clocks: holders that live have renewed it since.
func (r Replica) findsOldLease() (age time.Duration, ok bool) {
	e := r.Election
	if e.Holder == "" || e.Duration == 0 || e.Renewed.IsZero() || r.Started.IsZero() || r.Observed.IsZero() {
		return 0, false
	}
	return r.Observed.Sub(e.Renewed), r.Started.Sub(e.Renewed) > time.Duration(e.Duration)*time.Second
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
			"See whether the others are running, and how their contact with the leader is:",
			"$ regent status -o wide"+s.onShard(),
			"Replicas must reach each other on --probe-port.")
	}
}
