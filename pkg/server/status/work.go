package status

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// slowStart is how long a controller may wait or start before it is a problem.
	slowStart = 2 * time.Minute
	// recentFailure is how long a controller's failure is told after it works again.
	recentFailure = time.Hour
	// manyRestarts, the last of them justNow, are more than an accident.
	manyRestarts, justNow = 3, time.Minute
)

// quarantinedInRanges reports whether work of any range's term does not stop.
func quarantinedInRanges(r Replica) bool {
	return r.Ranges != nil && slices.ContainsFunc(r.Ranges.Ranges, func(of Range) bool { return of.State == stateQuarantined })
}

func nobodyIsQuarantined(s *shardView) {
	for _, r := range s.answered {
		if r.Election.State != stateQuarantined && (r.Electing == nil || r.Electing.State != stateQuarantined) && !quarantinedInRanges(r) {
			continue
		}
		what, remedy := fmt.Sprintf("Replica %s is quarantined: work of its last term does not stop. It serves, and does not campaign.", r.Name), []string(nil)
		if late := inState(r, "late"); len(late) > 0 {
			what += " Late: " + strings.Join(late, ", ") + "."
			remedy = append(remedy, "Keep the stacks of what is late for its author:", s.stacks(late[0]))
		}
		if r.Election.isEndless() && len(s.leading) == 0 {
			what += " The lease does not expire, so nobody leads until the work stops or the process ends."
		}
		s.add(Warning, r.Name, kindQuarantined, what, append(remedy, fmt.Sprintf("Restart %s, at any time: another replica leads, or will when the lease has expired.", r.Name))...)
	}
}

// isEndless reports whether somebody holds the lease, and it does not expire.
func (e Election) isEndless() bool { return e.Holder != "" && e.Duration == 0 }

func (s *shardView) stacks(controller string) string {
	return "$ regent controllers " + controller + s.onShard()
}

func inState(r Replica, state string) (names []string) {
	for _, c := range r.Controllers {
		if c.State == state {
			names = append(names, c.Name)
		}
	}
	return names
}

func controllersWork(s *shardView) {
	for _, r := range s.answered {
		for _, c := range r.Controllers {
			s.controller(r, c)
		}
	}
}

func (s *shardView) controller(r Replica, c Controller) {
	who := fmt.Sprintf("Controller %s of replica %s", c.Name, r.Name)
	if c.HeldBy != "" {
		s.add(Warning, r.Name, kindControllerHeld, fmt.Sprintf("%s has work of one logical cluster only, %s, and finishes none of it. It would still work for others.", who, c.HeldBy),
			"Its stacks say where it hangs. Keep them for the controller's author:", s.stacks(c.Name),
			"Look at what that cluster has many of, or what is large there. A restart of this replica ends what hangs.")
	}
	handOver := "$ regent step-down" + s.onShard() + " --reason 'controller " + c.Name + "'"
	switch c.State {
	case "late":
		s.add(Warning, r.Name, kindControllerLate, fmt.Sprintf("%s does not stop%s.", who, s.since(r, c)),
			"Its stacks say where it hangs:", s.stacks(c.Name), fmt.Sprintf("Restart %s, which ends it.", r.Name))
	case "stalled":
		s.add(Warning, r.Name, kindControllerStalls, fmt.Sprintf("%s holds work and finishes none of it%s. After twice its deadline it is restarted.%s", who, s.since(r, c), c.failure()),
			"Its stacks say what it waits for:", s.stacks(c.Name),
			"If that is this replica's fault, hand over:", handOver)
	case "failed":
		what, remedy := fmt.Sprintf("%s has failed%s.%s", who, s.since(r, c), c.failure()), []string{"Read why, and the replica's log:", s.stacks(c.Name)}
		if c.Tolerated {
			what += " It is tolerated, because other replicas could not run it either, and is retried at most once a minute."
		} else {
			remedy = append(remedy, "If that is this replica's fault, hand over:", handOver)
		}
		s.add(Warning, r.Name, kindControllerFailed, what, remedy...)
	case "restarting":
		s.add(Warning, r.Name, kindControllerAgain, fmt.Sprintf("%s has failed and is being restarted, for the %s time.%s", who, ordinal(c.Restarts+1), c.failure()),
			"More than 5 failures in 5 minutes end the term. Read why, and the replica's log:", s.stacks(c.Name))
	case "waiting", "starting":
		if s.age(r, c) > slowStart {
			s.add(Warning, r.Name, kindControllerWaits, fmt.Sprintf("%s is %s%s.", who, c.State, s.since(r, c)),
				"It waits for caches, or for a controller that it needs. See which one is not running, and whether etcd answers:", "$ regent controllers"+s.onShard())
		}
	case "stopped":
		if s.failedLately(r, c, recentFailure) && s.hasEndedATerm(r, c) {
			s.add(Warning, r.Name, kindControllerFailed, fmt.Sprintf("%s failed %s ago, and this ended a term of that replica.%s", who, lasting(s.answerTime(r).Sub(c.Failed)), c.failure()),
				"Another replica runs it now. Read why it failed, and this replica's log, before it has to lead again:", s.stacks(c.Name))
		}
	case "running":
		if s.failedLately(r, c, recentFailure) {
			severity := Notice
			if c.Restarts >= manyRestarts && s.failedLately(r, c, justNow) {
				severity = Warning // it works between two failures
			}
			s.add(severity, r.Name, kindControllerAgain, fmt.Sprintf("%s works, and failed %s ago.%s", who, lasting(s.answerTime(r).Sub(c.Failed)), c.failure()),
				"Read why, and the replica's log:", s.stacks(c.Name))
		}
	}
}

// failedLately reports whether a controller has failed in the last time.
func (s *shardView) failedLately(r Replica, c Controller, within time.Duration) bool {
	return !c.Failed.IsZero() && s.answerTime(r).Sub(c.Failed) < within
}

// hasEndedATerm reports whether a term of the replica has ended in the last hour because the controller failed, and who
// leads now has no such failure.
func (s *shardView) hasEndedATerm(r Replica, c Controller) bool {
	for _, leader := range s.leading {
		if leader.Process() == r.Process() || slices.Contains(inState(leader, "failed"), c.Name) {
			return false
		}
	}
	return slices.ContainsFunc(s.Terms, func(t Term) bool {
		return t.Replica == r.Name && t.EndCause == "failed" && strings.Contains(t.EndReason, strconv.Quote(c.Name)) && s.now.Sub(t.Ended) < recentFailure
	})
}

// failure returns why a controller last failed, as a sentence.
func (c Controller) failure() string {
	if c.LastError == "" {
		return ""
	}
	text := " Last error: " + strings.TrimSuffix(strings.TrimSpace(strings.ReplaceAll(c.LastError, "\n", " ")), ".")
	if c.Effect != "" {
		text += " (" + c.Effect + ")"
	}
	return text + "."
}

// answerTime is when a replica answered, by the clock by which it tells its times.
func (s *shardView) answerTime(r Replica) time.Time {
	if r.Observed.IsZero() {
		return s.now
	}
	return r.Observed
}

func (s *shardView) age(r Replica, c Controller) time.Duration {
	if c.Since.IsZero() {
		return 0
	}
	return s.answerTime(r).Sub(c.Since)
}

func (s *shardView) since(r Replica, c Controller) string {
	if c.Since.IsZero() {
		return ""
	}
	return ", for " + lasting(s.age(r, c))
}

func ordinal(n int) string {
	words := []string{"", "first", "second", "third"}
	if n < len(words) {
		return words[n]
	}
	if ends := map[int]string{1: "st", 2: "nd", 3: "rd"}; !slices.Contains([]int{11, 12, 13}, n%100) && ends[n%10] != "" {
		return fmt.Sprint(n) + ends[n%10]
	}
	return fmt.Sprint(n) + "th"
}
