package status

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

func somebodyLeads(s *shardView) {
	if len(s.leading) > 0 || len(s.answered) == 0 {
		return
	}
	longest, last := leaderless(s.answered)
	if s.Leader != "" && longest == 0 {
		return // it leads, and does not answer: replicasAnswer says so
	}
	what := fmt.Sprintf("Nobody leads shard %s", s.Name)
	if longest > 0 {
		what += ", for " + lasting(longest)
	}
	what += "."
	if last != "" {
		what += fmt.Sprintf(" The last reason for which a leader gave the lease up: %s.", last)
	}
	users := "; users can still read and write."
	if !slices.ContainsFunc(s.answered, func(r Replica) bool { return len(r.NotReady) == 0 }) {
		users = ", and no replica is ready: users' requests fail, or soon will."
	}
	s.add(Critical, "", kindNoLeader, what+" Controllers do not work"+users,
		"If this lasts for longer than twice the lease duration, see why the replicas do not take the lease: the other problems listed here, and the Events.",
		s.onLease("describe", s.lease()),
		"If no replica can write, check etcd. If each steps down because of its own controllers, see which one fails:",
		"$ regent controllers"+s.onShard())
}

func eachRangeIsLed(s *shardView) {
	of := s.Divided()
	if of == nil || len(s.leading) == 0 { // otherwise somebodyLeads tells
		return
	}
	var without []string
	var longest time.Duration
	for _, r := range of.Ranges {
		if r.Leader == "" && r.Leaderless > 0 {
			without = append(without, fmt.Sprint(r.Range))
			longest = max(longest, seconds(r.Leaderless))
		}
	}
	if len(without) == 0 {
		return
	}
	s.add(Critical, "", kindNoLeader, fmt.Sprintf("Nobody leads %d of the %d ranges of shard %s, for %s: %s. Controllers do not work for the logical clusters in them; users can still read and write.",
		len(without), len(of.Ranges), s.Name, lasting(longest), strings.Join(without, ", ")),
		"If this lasts for longer than twice the lease duration, see why the terms ended, and what the replicas say:",
		"$ regent terms"+s.onShard(),
		s.onLease("describe", s.lease()+"-"+without[0]))
}

// leaderless returns for how long no leader has been known, and why the last one gave the lease up.
func leaderless(replicas []Replica) (longest time.Duration, last string) {
	for _, r := range replicas {
		longest = max(longest, seconds(r.Election.Leaderless))
		last = orElse(r.Election.LastStepDown, last)
	}
	return longest, last
}

func oneLeads(s *shardView) {
	if len(s.leading) < 2 {
		return
	}
	var who []string
	lowest := s.leading[0]
	for _, r := range s.leading {
		if who = append(who, fmt.Sprintf("%s (epoch %d)", r.Name, r.Election.Epoch)); r.Election.Epoch < lowest.Election.Epoch {
			lowest = r
		}
	}
	if lowest.Election.Lease == "" {
		s.add(Critical, "", kindTwoLeaders, fmt.Sprintf("%s all lead shard %s, because they run without leader election.", strings.Join(who, " and "), s.Name),
			"Restart all but one, or restart all with --enable-leader-election.")
		return
	}
	s.add(Critical, "", kindTwoLeaders, fmt.Sprintf("%s all say that they lead shard %s.", strings.Join(who, " and "), s.Name),
		"Ask again: while leadership changes, two answers may be of different moments.",
		"$ regent status"+s.onShard(),
		fmt.Sprintf("If it stays so, restart %s, whose term is the older one. Its writes are refused, unless it runs with --fencing=warn.", lowest.Name))
}

func somebodyElects(s *shardView) {
	var since time.Duration
	for _, r := range s.answered {
		if r.Electing == nil || leads(*r.Electing) {
			return
		}
		since = max(since, seconds(r.Electing.Leaderless))
	}
	if since == 0 {
		return
	}
	s.add(Warning, "", kindNoElector, fmt.Sprintf("Nobody has elected leaders of shard %s for %s. If its leader ends now, nobody succeeds it.", s.Name, lasting(since)),
		"See why no replica takes the second Lease, and check etcd:",
		s.onLease("describe", s.answered[0].Electing.Lease))
}

// lateRenewals is which part of the lease duration may pass without a renewal. With the default timings it is two and a
// half retry periods.
const lateRenewals = 3

func leaseIsRenewed(s *shardView) {
	for _, r := range s.leading {
		e := r.Election
		if e.Duration == 0 || e.Renewed.IsZero() || r.Observed.IsZero() {
			continue
		}
		age, duration := r.Observed.Sub(e.Renewed), time.Duration(e.Duration)*time.Second
		if age <= duration/lateRenewals {
			continue
		}
		severity := Warning
		if age > duration {
			severity = Critical
		}
		s.add(severity, r.Name, kindRenewalLate, fmt.Sprintf("Leader %s last renewed its lease of %s %s ago.", r.Name, duration, lasting(age)),
			"etcd or the replica's CPU is slow, or the network between them is cut. What the replica measures:",
			"$ regent doctor"+s.onShard(),
			"If only this replica is slow, hand over:",
			"$ regent step-down"+s.onShard()+" --reason 'renewals are late'")
	}
}

func holderIsAccountedFor(s *shardView) {
	for _, r := range s.answered {
		e := r.Election
		if !e.Unaccounted {
			continue
		}
		who := orElse(e.Leader, e.Holder)
		remedy := []string{"Find out on its machine whether it is alive. If it is, fix what keeps it silent. If it is gone for good, say so:"}
		if e.Leader != "" {
			remedy = append(remedy, "$ regent forget-replica "+orElse(e.LeaderInstance, e.Leader))
		} else {
			remedy = append(remedy, s.onLease("patch", e.Lease)+` --type=merge --patch='{"spec":{"holderIdentity":""}}'`)
		}
		s.add(Critical, "", kindUnaccounted, fmt.Sprintf("The lease of shard %s is held by %s, which is silent and may be dead. Nobody else may take the lease.", s.Name, who), remedy...)
		return
	}
}

func epochsAreLeft(s *shardView) {
	for _, r := range s.answered {
		if r.Election.Epoch < math.MaxInt32 {
			continue
		}
		s.add(Critical, "", kindNoEpochLeft, fmt.Sprintf("The Lease of shard %s has the highest epoch: no further term can begin. Somebody has edited the Lease.", s.Name),
			"Delete the Lease. This ends the leader's term, if there is one; epochs begin again with 1:",
			s.onLease("delete", r.Election.Lease))
		return
	}
}

func modesAgree(s *shardView) {
	for _, r := range s.answered {
		if r.Election.OtherMode {
			s.add(Warning, r.Name, kindOtherMode, fmt.Sprintf("Replica %s stands by in mode %s, and leaders lead in another one: it cannot succeed them.", r.Name, r.Election.Mode),
				"This is normal while a roll changes the mode. Otherwise give all replicas the same --leader-election-mode, and restart this one.")
		}
	}
}

func allCanLead(s *shardView) {
	for _, r := range s.answered {
		if why := r.Election.CannotLead; why != "" {
			s.add(Warning, r.Name, kindCannotLead, fmt.Sprintf("Replica %s takes no part in the election: %s.", r.Name, strings.TrimSuffix(why, ".")),
				"It still serves. Read its log, and see whether it reaches etcd: it takes part again by itself when it can read and write the Lease, and in mode coordinated its LeaseCandidate.")
		}
	}
}

// So many terms in so short a time are a fault, if nobody has asked the ones before to end. Alert
// RegentLeaderChangesOften has the same rule.
const (
	flappingTerms  = 4
	flappingPeriod = 10 * time.Minute
)

// leadersLast looks at the terms of each range: those of different ranges have nothing to do with each other.
func leadersLast(s *shardView) {
	byRange := map[int][]Term{}
	for _, t := range s.Terms {
		byRange[t.Range] = append(byRange[t.Range], t)
	}
	for _, index := range slices.Sorted(maps.Keys(byRange)) {
		if s.lastsTooShort(index, byRange[index]) {
			return // one is enough: what ends the terms of one range mostly ends those of others
		}
	}
}

// lastsTooShort adds a problem if leaders of a range follow each other too soon.
func (s *shardView) lastsTooShort(index int, all []Term) bool {
	counts := map[string]int{}
	unasked, recent := 0, 0
	for n, t := range all {
		if s.now.Sub(t.Began) >= flappingPeriod {
			continue
		}
		recent++
		cause := t.Trigger
		if n+1 < len(all) {
			cause = orElse(all[n+1].EndCause, cause)
		}
		if t.IsFirst() || n+1 < len(all) && all[n+1].endedOnRequest() {
			continue
		}
		unasked++
		counts[orElse(cause, "not known")]++
	}
	if unasked < flappingTerms {
		return false
	}
	var causes []string
	for _, cause := range slices.Sorted(maps.Keys(counts)) {
		causes = append(causes, fmt.Sprintf("%s (%d)", cause, counts[cause]))
	}
	terms := fmt.Sprintf("%d terms", unasked)
	if recent == len(all) && all[len(all)-1].Epoch > 1 { // earlier ones are not told here
		terms += " or more"
	}
	if len(s.Terms) > len(all) {
		terms += fmt.Sprintf(" of range %d", index)
	}
	s.add(Warning, "", kindFlapping, fmt.Sprintf("Shard %s has begun %s in the last %.0f minutes that nobody asked for. Causes: %s.", s.Name, terms, flappingPeriod.Minutes(), strings.Join(causes, ", ")),
		"See why the terms ended:",
		"$ regent terms"+s.onShard(),
		"`failed`: a controller. `renew deadline` and `expiry`: etcd or the CPU is slow. `suspicion` and `death`: machines hang, or the network between them is cut.")
	return true
}
