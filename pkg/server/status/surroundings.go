package status

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// by are the replicas that say the same of one thing, in the order in which the things were first named.
type by struct {
	things   []string
	replicas map[string][]string
}

func (b *by) add(thing, replica string) {
	if b.replicas == nil {
		b.replicas = map[string][]string{}
	}
	if _, known := b.replicas[thing]; !known {
		b.things = append(b.things, thing)
	}
	b.replicas[thing] = append(b.replicas[thing], replica)
}

func (b *by) names(thing string) string { return strings.Join(b.replicas[thing], ", ") }

func etcdServes(s *shardView) {
	var silent by
	others := " No member does: see whether etcd is running."
	for _, r := range s.answered {
		for _, m := range r.Etcd {
			if m.Serves {
				others = " Another member does."
				continue
			}
			silent.add(m.Endpoint, r.Name)
		}
	}
	for _, endpoint := range silent.things {
		s.add(Warning, "", kindEtcdMember, fmt.Sprintf("Member %s of etcd does not answer %s.", endpoint, silent.names(endpoint))+others,
			"Check that member, its disk, and the network to it. The next member that fails may stop all writes.",
			"$ etcdctl --endpoints="+endpoint+" endpoint status --write-out=table",
			"The replica's log says what is wrong with the connection.")
	}
}

// allIsSound tells of what is stored and is no object.
func allIsSound(s *shardView) {
	var aside by
	latest := map[string]Aside{}
	for _, r := range s.answered {
		for _, a := range r.Aside {
			aside.add(a.Resource, r.Name)
			if a.ModRevision >= latest[a.Resource].ModRevision {
				latest[a.Resource] = a
			}
		}
	}
	for _, resource := range aside.things {
		a := latest[resource]
		what := fmt.Sprintf("Something is stored among %s that is no object, with mod revision %d.", resource, a.ModRevision)
		if a.Number > 1 {
			what = fmt.Sprintf("%d things are stored among %s that are no objects, the last with mod revision %d.", a.Number, resource, a.ModRevision)
		}
		s.add(Warning, "", kindSetAside, what+fmt.Sprintf(" Lists and watches leave it out. Told by: %s.", aside.names(resource)),
			"Somebody writes to etcd directly, or a disk is broken. The log has all revisions (\"What is stored is no object\").",
			"Find the key by the revision, and delete it or restore it from a backup.")
	}
}

// peersAreHeard leaves out shards that do not answer at all: shardAnswers tells of them.
func peersAreHeard(s *shardView) {
	var silent by
	gone := map[string]bool{}
	for _, other := range s.of.Shards {
		gone[other.Name] = other.Fault != ""
	}
	for _, r := range s.answered {
		for _, p := range r.Peers {
			if !p.Heard && !gone[p.Shard] {
				silent.add(p.Shard, r.Name)
			}
		}
	}
	for _, peer := range silent.things {
		s.add(Warning, "", kindPeerSilent, fmt.Sprintf("Shard %s is not heard by %s of shard %s. What either assigns to the other waits.", peer, silent.names(peer), s.Name),
			"If that shard answers, check the network to it; the replica's log says what is wrong.",
			"$ regent status --shard="+peer)
	}
}

// Certificates that expire sooner than this are told.
const (
	expiresSoon   = 30 * 24 * time.Hour
	expiresAtOnce = 7 * 24 * time.Hour
)

func certificatesLast(s *shardView) {
	var expiring by
	when := map[string]time.Time{}
	for _, r := range s.answered {
		for _, c := range r.Certificates {
			if left := c.Expires.Sub(s.now); left < expiresSoon {
				thing := fmt.Sprintf("%s %s", c.Name, c.Expires.UTC().Format(time.RFC3339))
				expiring.add(thing, r.Name)
				when[thing] = c.Expires
			}
		}
	}
	for _, thing := range expiring.things {
		name, _, _ := strings.Cut(thing, " ")
		left, severity := when[thing].Sub(s.now), Warning
		what := fmt.Sprintf("Certificate %q of %s expires in %s, at %s.", name, expiring.names(thing), lasting(left), when[thing].UTC().Format(time.RFC3339))
		if left < expiresAtOnce {
			severity = Critical
		}
		if left <= 0 {
			what = fmt.Sprintf("Certificate %q of %s has expired, at %s. Connections fail.", name, expiring.names(thing), when[thing].UTC().Format(time.RFC3339))
		}
		s.add(severity, "", kindCertificate, what, renewal(name)...)
	}
}

// renewal returns how to get another certificate.
func renewal(name string) []string {
	if name == "authority" {
		return []string{"Roll the authority, in three steps, each of which tells the next one:", "$ regent pki roll begin"}
	}
	return []string{"Renew it where pki/ is; replicas use it within seconds, without a restart:", "$ regent pki renew",
		"A certificate of your own (--tls-cert-file) comes from whoever made it: exchange the file."}
}

func shardHasRoom(s *shardView) {
	if s.Capacity == 0 || s.Fault != "" || s.Cordoned || s.Clusters*10 < s.Capacity*9 {
		return
	}
	severity, what := Notice, fmt.Sprintf("Shard %s has %d logical clusters, of at most %d.", s.Name, s.Clusters, s.Capacity)
	if s.Clusters >= s.Capacity {
		severity, what = Warning, what+" It takes no more."
	}
	s.add(severity, "", kindShardFull, what, "Add a shard, or raise the limit of this one:", "$ regent shard add --help")
}

// versionsAgree looks at replicas and fronts.
func versionsAgree(d *diagnosis) {
	var versions by
	for _, f := range d.of.Fronts {
		if f.Version != "" {
			versions.add(f.Version, "front "+f.Name)
		}
	}
	for _, s := range d.of.Shards {
		for _, r := range s.Replicas {
			if r.Fault == "" && r.Version != "" {
				versions.add(r.Version, s.Name+"/"+r.Name)
			}
		}
	}
	if len(versions.things) < 2 {
		return
	}
	slices.Sort(versions.things)
	if older, newer, minors := farthest(versions.things); minors > MaxSkew {
		d.add(Problem{Severity: Warning, What: fmt.Sprintf("Between %s (%s) and %s (%s) are more minor versions than one. No test has such versions meet.", older, versions.names(older), newer, versions.names(newer))}, kindSkew,
			[]string{"Go on from one minor version to the next, in all processes, before you take the one after it."})
	}
	var all []string
	for _, v := range versions.things {
		all = append(all, fmt.Sprintf("%s (%s)", v, versions.names(v)))
	}
	d.add(Problem{Severity: Notice, What: "Servers run different versions: " + strings.Join(all, "; ") + "."}, kindVersions,
		[]string{"This is normal during a roll. Otherwise upgrade the rest: standbys first, the leader last."})
}

const (
	// farClock is how much clocks may differ. askTime is how long before the whole answer a replica may have given
	// its own.
	farClock = time.Second
	askTime  = 2 * time.Second
)

// clocksAgree compares the clock of whoever made the answer with the asker's, and those of all replicas with the
// former.
func clocksAgree(d *diagnosis) {
	if d.of.Observed.IsZero() {
		return
	}
	d.clock(Problem{Replica: d.of.By}, fmt.Sprintf("The clock of replica %s", d.of.By), "this machine's", d.of.Observed, d.now)
	for _, s := range d.of.Shards {
		for _, r := range s.Replicas {
			if r.Fault == "" && !r.Observed.IsZero() && r.Name != d.of.By {
				d.clock(Problem{Shard: s.Name, Replica: r.Name}, fmt.Sprintf("The clock of replica %s", r.Name), fmt.Sprintf("that of %s", d.of.By), r.Observed, d.of.Observed)
			}
		}
	}
}

func (d *diagnosis) clock(p Problem, whose, than string, told, then time.Time) {
	ahead := told.Sub(then)
	switch {
	case ahead > farClock:
		p.What = fmt.Sprintf("%s is %s ahead of %s.", whose, lasting(ahead), than)
	case -ahead > farClock+askTime:
		p.What = fmt.Sprintf("%s is %s behind %s.", whose, lasting(-ahead), than)
	default:
		return
	}
	p.Severity = Warning
	d.add(p, kindClock, []string{"Check the machine's time service. Certificates, tokens and ages depend on the clock; who leads does not.", "$ timedatectl timesync-status"})
}
