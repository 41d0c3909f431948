package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

func shardAnswers(s *shardView) {
	if s.Fault == "" {
		return
	}
	s.add(Critical, "", kindShardSilent, fmt.Sprintf("Shard %s does not answer: %s. Its users are refused.", s.Name, s.Fault),
		"See whether its replicas are running, and start them. Then ask one of them directly:",
		"$ regent status --server=https://<replica>:<port>",
		"If it answers, the other shards cannot reach it: `regent shard list` has its URLs, and `regent shard set` changes them.",
		"$ regent shard list")
}

func replicasAnswer(s *shardView) {
	for _, r := range s.Replicas {
		if r.Fault == "" {
			continue
		}
		severity, what := Warning, fmt.Sprintf("Replica %s does not answer: %s.", r.Name, r.Fault)
		if s.LedBy(r) {
			what += " It holds the lease."
		}
		remedy := []string{"See whether its process is running, and read its log. Start it if it has ended, or restart it if it hangs: another replica leads meanwhile.",
			fmt.Sprintf("If it is running: can the others reach %s? Check --advertise-address and network policies.", orElse(r.URL, "its URL"))}
		if len(s.answered) == 0 {
			severity = Critical
			remedy = append(remedy, fmt.Sprintf("No replica of shard %s answers: start any of them first.", s.Name))
		}
		s.add(severity, r.Name, kindReplicaSilent, what, remedy...)
	}
}

// namesDiffer looks for processes that live and have one name. One that was started anew is the same replica.
func namesDiffer(s *shardView) {
	urls := map[string][]string{}
	for _, r := range s.answered {
		urls[r.Name] = append(urls[r.Name], orElse(r.URL, r.Process()))
	}
	for _, name := range slices.Sorted(maps.Keys(urls)) {
		if len(urls[name]) < 2 {
			continue
		}
		s.add(Warning, name, kindSameName, fmt.Sprintf("%d replicas of shard %s are called %s: those at %s. Nobody can tell them apart in logs, metrics and terms, and to hand over to that name means any of them.",
			len(urls[name]), s.Name, name, strings.Join(urls[name], " and ")),
			"Give each a --replica-name of its own, and restart it. Without the flag the name is made of the host's name and --secure-port.",
			"If one of them was to be replaced by the other one, see why its process still runs, and end it.")
	}
}

// checkRemedies are what to do about checks of /readyz, by name.
var checkRemedies = map[string]string{
	"etcd":              "Check etcd: etcdctl endpoint status and alarm list, its log and its disk; then the network between this replica and it.",
	"etcd-history":      "etcd's history has gone back, as after a restore: restart all replicas (docs/OPERATIONS.md#after-a-restore-of-etcd).",
	"certificates":      "The files in pki/ cannot be used, and the replica keeps the keys that it has: fix the files (docs/CERTIFICATES.md#certificates).",
	"encryption-config": "The file of --encryption-provider-config cannot be used: fix it (docs/OPERATIONS.md#encryption-at-rest).",
	"informers":         "Its caches are not complete: etcd is slow, or the replica has just started. Wait a minute, then look at its log.",
	"supervisor":        "The supervisor of its controllers hangs: restart the replica.",
	"shard":             "What the shard keeps of itself in etcd is not this replica's: look at its log, --etcd-servers, --etcd-prefix and --shard-name.",
}

func replicasReady(s *shardView) {
	unready := 0
	for _, r := range s.answered {
		if len(r.NotReady) > 0 {
			unready++
		}
	}
	severity := Warning
	if unready == len(s.answered) {
		severity = Critical // users are refused
	}
	for _, r := range s.answered {
		if len(r.NotReady) == 0 {
			continue
		}
		var faults, remedy []string
		for _, check := range r.NotReady {
			faults = append(faults, fmt.Sprintf("%s (%s)", check.Name, check.Error))
			if more, ok := checkRemedies[check.Name]; ok {
				remedy = append(remedy, more)
			}
		}
		remedy = append(remedy, "The replica itself says more, and so does its log:", "$ "+raw(r, "/readyz?verbose"))
		s.add(severity, r.Name, kindNotReady, fmt.Sprintf("Replica %s is not ready: %s.", r.Name, strings.Join(faults, "; ")), remedy...)
	}
}

// raw returns a kubectl command that asks a replica itself.
func raw(r Replica, path string) string {
	context := "root"
	if r.URL != "" {
		context += " --server " + r.URL
	}
	return fmt.Sprintf("kubectl --context %s get --raw '%s'", context, path)
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
