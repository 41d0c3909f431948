package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/regent-project/regent/cmd/server/face/ask"
	"github.com/regent-project/regent/pkg/server/status"
)

// looks are all that is looked at of a replica besides what it says itself.
var looks = []func(*patient){
	(*patient).latency, (*patient).etcdLatency, (*patient).etcdSpace, (*patient).descriptors,
	(*patient).renewals, (*patient).fencing, (*patient).refusals, (*patient).quotas,
	(*patient).keys, (*patient).certificate, (*patient).clock, (*patient).version,
}

// What is slow, and how full is full.
const (
	slowAnswer              = 500 * time.Millisecond
	slowEtcd                = 500 * time.Millisecond
	fullWarns, fullCritical = 0.8, 0.95
	expiresSoon             = 30 * 24 * time.Hour
	expiresAtOnce           = 7 * 24 * time.Hour
	farClock                = time.Second
)

func (x *patient) latency() {
	if len(x.Seen.Latencies) == 0 {
		return
	}
	median := x.Seen.Latencies[len(x.Seen.Latencies)/2]
	if !x.check("latency of the API", median < slowAnswer, "median of %d: %.1fms", len(x.Seen.Latencies), median.Seconds()*1000) {
		x.add(status.Warning, "api-slow", fmt.Sprintf("Replica %s takes %s for a small answer.", x.Name, median.Round(time.Millisecond)),
			"Either the network to it is slow, or its CPUs are busy:", "$ regent top --sort=cpu")
	}
}

func (x *patient) etcdLatency() {
	p99, count := x.Metrics.Quantile("etcd_request_duration_seconds", 0.99, nil)
	span := "while it was watched"
	if count == 0 {
		p99, count = ask.Interval{After: x.Metrics.After}.Quantile("etcd_request_duration_seconds", 0.99, nil)
		span = "since its start"
	}
	if count == 0 {
		return
	}
	if !x.check("latency of etcd", p99 < slowEtcd, "p99 of %d requests %s: at most %s", count, span, p99) {
		x.add(status.Warning, "etcd-slow", fmt.Sprintf("etcd takes up to %s for a request of replica %s. Renewals have the renew deadline, 10 s by default.", p99, x.Name),
			"Look at etcd's disk (etcd_disk_wal_fsync_duration_seconds), its CPU, and the network to it.", "$ etcdctl endpoint status --write-out=table", "$ etcdctl check perf")
	}
}

// etcdSpace looks for the codes with which etcd answers while an alarm is raised. The alarms themselves a replica does
// not see.
func (x *patient) etcdSpace() {
	const answers = "grpc_client_handled_total"
	full := x.Metrics.Growth(answers, ask.Is("grpc_code", "ResourceExhausted"))
	corrupt := x.Metrics.After.Sum(answers, ask.Is("grpc_code", "DataLoss"))
	if !x.check("alarms of etcd", full == 0 && corrupt == 0, "%d answers \"resource exhausted\" while it was watched, %d \"data loss\" since its start", int(full), int(corrupt)) {
		severity, what := status.Critical, fmt.Sprintf("etcd refuses writes of replica %s: it is out of space (alarm NOSPACE), or asked for too much.", x.Name)
		if corrupt > 0 {
			what = fmt.Sprintf("etcd has told replica %s that data is lost (alarm CORRUPT).", x.Name)
		}
		x.add(severity, "etcd-alarm", what, "See which alarm it is. If there is no space: compact, defragment, and then disarm; or raise etcd's quota.",
			"$ etcdctl alarm list", "$ etcdctl endpoint status --write-out=table", "$ etcdctl compact $(etcdctl endpoint status --write-out=json | jq '.[0].Status.header.revision')", "$ etcdctl defrag --cluster && etcdctl alarm disarm")
	}
}

func (x *patient) descriptors() {
	open, most := x.Metrics.After.Sum("process_open_fds", nil), x.Metrics.After.Sum("process_max_fds", nil)
	if most == 0 {
		return
	}
	if !x.check("open descriptors", open/most < fullWarns, "%d of %d", int(open), int(most)) {
		severity := status.Warning
		if open/most >= fullCritical {
			severity = status.Critical
		}
		x.add(severity, "descriptors", fmt.Sprintf("Replica %s has %d of %d file descriptors open.", x.Name, int(open), int(most)),
			"See which replicas have many connections, and raise `ulimit -n`, or lower --max-connections.", "$ regent top -o wide")
	}
}

func (x *patient) renewals() {
	name := "leader_election_slowpath_total"
	grown := x.Metrics.Growth(name, nil)
	if !x.check("renewals", grown == 0, "%d repeated while it was watched, %d since its start", int(grown), int(x.Metrics.After.Sum(name, nil))) {
		x.add(status.Notice, "renewals-repeated", fmt.Sprintf("Replica %s had to repeat renewals of its lease: something else writes the Lease, or etcd is slow.", x.Name),
			"See what writes it:", "$ kubectl --context system:admin get lease -n kube-system regent-controllers -o yaml --show-managed-fields")
	}
}

func (x *patient) fencing() {
	const refused = "regent_fencing_refused_total"
	var grows []string
	for _, cause := range []string{"deposed", "released", "deleted", "missing"} {
		if n := x.Metrics.Growth(refused, ask.Is("cause", cause)); n > 0 {
			grows = append(grows, fmt.Sprintf("%d %s", int(n), cause))
		}
	}
	unfenced := x.Metrics.Growth("regent_fencing_unfenced_writes_total", ask.Is("user", "system:regent:leader"))
	total := int(x.Metrics.After.Sum(refused, nil))
	if !x.check("fencing", len(grows) == 0 && unfenced == 0, "%d refused while it was watched, %d since its start", int(x.Metrics.Growth(refused, nil)), total) {
		what := fmt.Sprintf("Replica %s refuses writes of terms that are over, or without a token: %s.", x.Name, strings.Join(grows, ", "))
		if len(grows) == 0 {
			what = fmt.Sprintf("Controllers of replica %s write without a fencing token.", x.Name)
		}
		x.add(status.Warning, "fencing-refusals", what, "A few at a failover are what fencing is for. If they continue, a process elsewhere does not stop after 412: the audit log names it.",
			"`missing`: a controller does not write with the clients of its Deps (docs/FENCING.md#who-must-carry-a-token).")
	}
}

func (x *patient) refusals() {
	requests, connections := x.Metrics.Growth("regent_requests_refused_total", nil), x.Metrics.Growth("regent_api_connections_refused_total", nil)
	if !x.check("refused requests", requests == 0 && connections == 0, "%d requests and %d connections while it was watched", int(requests), int(connections)) {
		x.add(status.Warning, "refused-requests", fmt.Sprintf("Replica %s answers requests with 429, or refuses connections: %d and %d while it was watched.", x.Name, int(requests), int(connections)),
			"Its log names the tenant or the client. If its CPUs are idle meanwhile, raise the limit (docs/OPERATIONS.md#limits).", "$ regent top -o wide")
	}
}

func (x *patient) quotas() {
	if grown := x.Metrics.Growth("regent_quota_refused_total", nil); !x.check("quotas", grown == 0, "%d writes refused while it was watched", int(grown)) {
		x.add(status.Notice, "quota", fmt.Sprintf("Replica %s refuses writes, because their logical clusters are full.", x.Name), "The quotas are flags, and annotations of a LogicalCluster (docs/TENANCY.md#quotas).")
	}
}

func (x *patient) keys() {
	var refused []string
	for name, what := range map[string]string{"regent_certificates_refused": "pki/", "regent_encryption_config_refused": "--encryption-provider-config"} {
		if x.Metrics.After.Sum(name, nil) > 0 {
			refused = append(refused, what)
		}
	}
	slices.Sort(refused)
	if !x.check("files with keys", len(refused) == 0, "%d of its files cannot be used", len(refused)) {
		x.add(status.Warning, "files-refused", fmt.Sprintf("Replica %s cannot use %s, and keeps the keys that it has read before. If it is restarted, it does not start.", x.Name, strings.Join(refused, " and ")),
			"Its log and /readyz?verbose say what is wrong with the files.")
	}
}

func (x *patient) certificate() {
	if x.Seen.Expires.IsZero() {
		return
	}
	left := x.Seen.Expires.Sub(x.Now)
	if !x.check("the certificate that it shows", left > expiresSoon, "expires %s", x.Seen.Expires.UTC().Format(time.RFC3339)) {
		severity := status.Warning
		if left < expiresAtOnce {
			severity = status.Critical
		}
		x.add(severity, "serving-certificate", fmt.Sprintf("The certificate that replica %s shows expires at %s.", x.Name, x.Seen.Expires.UTC().Format(time.RFC3339)),
			"Replace the file of --tls-cert-file, or restart the replica if it makes its own certificate.")
	}
}

func (x *patient) clock() {
	ahead := x.Seen.Ahead
	if !x.check("its clock", ahead.Abs()-x.Seen.Within < farClock, "%s from this machine's, give or take %s", ahead.Round(time.Millisecond), x.Seen.Within.Round(time.Millisecond)) &&
		!slices.ContainsFunc(x.Problems, func(p status.Problem) bool { return p.Kind == "clock" && p.Replica == x.Name }) {
		x.add(status.Warning, "clock", fmt.Sprintf("The clock of replica %s is %s from this machine's.", x.Name, ahead.Round(time.Millisecond)),
			"Check the time service of both machines. Certificates, tokens and ages depend on the clock; who leads does not.", "$ timedatectl timesync-status")
	}
}

func (x *patient) version() {
	its := ""
	for label := range x.Metrics.After.By("kubernetes_build_info", nil, func(l ask.Labels) string { return l["git_version"] }) {
		its = label
	}
	for _, s := range x.Of.Shards {
		for _, r := range s.Replicas {
			if s.Name == x.Shard && r.Name == x.Name && r.Instance == x.Instance && r.Version != "" {
				its = r.Version
			}
		}
	}
	if its == "" {
		return
	}
	if !x.check("its version", its == x.Version, "%s, this program is %s", its, x.Version) {
		severity := status.Notice
		if minors, known := status.Skew(its, x.Version); known && minors > status.MaxSkew {
			severity = status.Warning
		}
		x.add(severity, "client-version", fmt.Sprintf("Replica %s runs %s, and this program is %s: one may not understand all that the other says.", x.Name, its, x.Version),
			"Use the version of regent that the replicas run.")
	}
}
