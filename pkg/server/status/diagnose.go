package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Diagnose returns what is wrong with an installation, the worst first. now is the asker's time at which the answer
// came. Diagnose asks nobody and changes nothing: the same answer and time have the same problems. What it cannot know,
// because a replica did not answer, is no problem but that.
//
// A Remedy has a line for each step. Lines that begin with "$ " are commands. The last line names the section of the
// docs that has more.
func Diagnose(of Installation, now time.Time) []Problem {
	d := &diagnosis{of: of, now: now}
	for _, shard := range of.Shards {
		s := d.view(shard)
		for _, rule := range shardRules {
			rule(s)
		}
	}
	for _, rule := range rules {
		rule(d)
	}
	slices.SortStableFunc(d.found, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Severity.rank(), b.Severity.rank()), cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Replica, b.Replica))
	})
	return d.found
}

// shardRules are about one shard, rules about all of them. This is the list of everything that Diagnose looks at.
var (
	shardRules = []func(*shardView){
		shardAnswers, replicasAnswer, namesDiffer, replicasReady,
		somebodyLeads, eachRangeIsLed, oneLeads, somebodyElects, leaseIsRenewed, holderIsAccountedFor, epochsAreLeft, modesAgree, allCanLead, leadersLast,
		nobodyIsQuarantined, contactIsAlive, leaderHasStandbys,
		controllersWork, etcdServes, allIsSound, peersAreHeard, certificatesLast, shardHasRoom, movesEnd,
	}
	rules = []func(*diagnosis){versionsAgree, clocksAgree}
)

// diagnosis collects what is found.
type diagnosis struct {
	of    Installation
	now   time.Time
	found []Problem
}

// shardView is what the rules look at: a shard, with its replicas sorted by what they say.
type shardView struct {
	*diagnosis
	Shard
	// answered are the replicas that could be asked, leading those of them that lead or drain.
	answered, leading []Replica
}

func (d *diagnosis) view(shard Shard) *shardView {
	if shard.Fault != "" {
		shard.Terms = nil // they are of before
	}
	s := &shardView{diagnosis: d, Shard: shard}
	for _, r := range shard.Replicas {
		if r.Fault != "" {
			continue
		}
		s.answered = append(s.answered, r)
		if leads(r.Election) {
			s.leading = append(s.leading, r)
		}
	}
	return s
}

// leads reports whether a replica does the leader's work. One that drains still holds the lease.
func leads(e Election) bool { return e.State == StateLeading || e.State == stateDraining }

// add notes a problem of the shard, or of one of its replicas.
func (s *shardView) add(severity Severity, replica string, kind kind, what string, remedy ...string) {
	s.diagnosis.add(Problem{Severity: severity, Shard: s.Name, Replica: replica, What: what}, kind, remedy)
}

func (d *diagnosis) add(p Problem, kind kind, remedy []string) {
	p.Kind, p.Remedy = string(kind), strings.Join(append(remedy, "See "+about[kind].section), "\n")
	d.found = append(d.found, p)
}

// onShard is what commands about this shard need besides. A lone shard needs nothing.
func (s *shardView) onShard() string {
	if len(s.of.Shards) > 1 {
		return " --shard=" + s.Name
	}
	return ""
}

// onLease returns a kubectl command about a Lease of this shard.
func (s *shardView) onLease(verb, lease string) string {
	namespace, name, _ := strings.Cut(lease, "/")
	context := "system:admin"
	if len(s.of.Shards) > 1 {
		context = s.Name + "/system:admin"
	}
	return fmt.Sprintf("$ kubectl --context %s %s lease -n %s %s", context, verb, namespace, name)
}

// lease returns the name of the shard's Lease.
func (s *shardView) lease() string {
	for _, r := range s.answered {
		if r.Election.Lease != "" {
			return r.Election.Lease
		}
	}
	return "kube-system/regent-controllers"
}

func (s Severity) rank() int { return slices.Index([]Severity{Critical, Warning, Notice}, s) }

// Worst returns the severity of the worst problem, or "" if there is none.
func Worst(problems []Problem) Severity {
	if len(problems) == 0 {
		return ""
	}
	return slices.MinFunc(problems, func(a, b Problem) int { return cmp.Compare(a.Severity.rank(), b.Severity.rank()) }).Severity
}

// lasting writes a duration as people read it: to the second, and to the millisecond below ten seconds.
func lasting(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(time.Millisecond).String()
	}
	if d < 48*time.Hour {
		return d.Round(time.Second).String()
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
