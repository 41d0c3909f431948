package view

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/regent-project/regent/cmd/server/face/ask"
)

// Row is what a replica, or a resource or a logical cluster on all replicas, has been asked for, in a second.
type Row struct {
	Shard   string `json:"shard,omitempty"`
	Replica string `json:"replica,omitempty"`
	State   string `json:"state,omitempty"`
	// Resource is <resource>.<group>, for rows of resources.
	Resource string `json:"resource,omitempty"`
	// Cluster and Path are those of a logical cluster, for rows of clusters.
	Cluster string `json:"cluster,omitempty"`
	Path    string `json:"path,omitempty"`
	// Fault says why nothing is known.
	Fault string `json:"fault,omitempty"`
	// Requests and Writes are requests for objects, in a second; watches count when they end. Refused are writes
	// that were answered with 403, 412, 422 or 429, and Failed requests that were answered with 5xx.
	Requests float64 `json:"requestsPerSecond"`
	Writes   float64 `json:"writesPerSecond"`
	Refused  float64 `json:"refusedWritesPerSecond"`
	Failed   float64 `json:"failedPerSecond"`
	// P99 is the 99th percentile of their durations, in seconds: the upper bound of a bucket.
	P99 float64 `json:"p99Seconds"`
	// Places are how many places a cluster's requests have held on average (docs/TENANCY.md says what a place is).
	Places float64 `json:"places,omitempty"`
	// TooMany are requests that were answered with 429 before they were handled, and Fenced writes of terms that
	// were over, in a second.
	TooMany float64 `json:"tooManyPerSecond,omitempty"`
	Fenced  float64 `json:"fencedPerSecond,omitempty"`
	// Now are requests that are being handled, Watches open watches, Connections open connections.
	Now         int `json:"now,omitempty"`
	Watches     int `json:"watches,omitempty"`
	Connections int `json:"connections,omitempty"`
	// Etcd are requests to etcd in a second. CPU are CPUs in use, Memory resident bytes.
	Etcd   float64 `json:"etcdPerSecond,omitempty"`
	CPU    float64 `json:"cpus,omitempty"`
	Memory int64   `json:"memoryBytes,omitempty"`
}

var writes = []string{"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"}

const requests, durations = "apiserver_request_total", "apiserver_request_duration_seconds"

func forObjects(l ask.Labels) bool { return l["resource"] != "" }
func isWrite(l ask.Labels) bool    { return forObjects(l) && slices.Contains(writes, l["verb"]) }
func isRefused(l ask.Labels) bool {
	return isWrite(l) && slices.Contains([]string{"403", "412", "422", "429"}, l["code"])
}
func isFailed(l ask.Labels) bool { return forObjects(l) && len(l["code"]) == 3 && l["code"][0] == '5' }
func isBrief(l ask.Labels) bool {
	return forObjects(l) && l["verb"] != "WATCH" && l["verb"] != "CONNECT"
}

// count fills in what clients have asked for, of those series that only names.
func (r *Row) count(i ask.Interval, only ask.Where) {
	both := func(more ask.Where) ask.Where {
		return func(l ask.Labels) bool { return only(l) && more(l) }
	}
	r.Requests = i.Rate(requests, both(forObjects))
	r.Writes = i.Rate(requests, both(isWrite))
	r.Refused = i.Rate(requests, both(isRefused))
	r.Failed = i.Rate(requests, both(isFailed))
	p99, _ := i.Quantile(durations, 0.99, both(isBrief))
	r.P99 = p99.Seconds()
}

// Rows returns what replicas were asked for: by says what of. Rows of replicas that could not be asked are among them,
// but for those of resources.
func Rows(by string, replicas []ask.Replica) (rows []Row) {
	var answers []ask.Replica
	for _, r := range replicas {
		switch {
		case r.Fault != "" && by != ByResource:
			rows = append(rows, Row{Shard: r.Shard, Replica: r.Name, State: r.State, Fault: r.Fault})
		case r.Fault != "":
		case by == ByReplica:
			rows = append(rows, rowOf(r))
		default:
			answers = append(answers, r)
		}
	}
	switch by {
	case ByCluster:
		rows = append(rows, rowsOfClusters(answers)...)
	case ByResource:
		rows = rowsOfResources(answers)
	}
	return rows
}

func rowOf(replica ask.Replica) Row {
	r, i := Row{Shard: replica.Shard, Replica: replica.Name, State: replica.State}, replica.Metrics
	r.count(i, func(ask.Labels) bool { return true })
	r.TooMany = i.Rate("regent_requests_refused_total", nil)
	r.Fenced = i.Rate("regent_fencing_refused_total", nil)
	r.Now = int(i.After.Sum("apiserver_current_inflight_requests", nil))
	r.Watches = int(i.After.Sum("apiserver_longrunning_requests", ask.Is("verb", "WATCH")))
	r.Connections = int(i.After.Sum("regent_api_connections", nil))
	r.Etcd = i.Rate("etcd_requests_total", nil)
	r.CPU = i.Rate("process_cpu_seconds_total", nil)
	r.Memory = int64(i.After.Sum("process_resident_memory_bytes", nil))
	return r
}

// rowsOfResources returns a row for each resource that was asked for on any of the replicas.
func rowsOfResources(replicas []ask.Replica) (rows []Row) {
	rates := map[string]*Row{}
	for _, replica := range replicas {
		i := replica.Metrics
		for name := range i.After.By(requests, forObjects, resource) {
			r := rates[name]
			if r == nil {
				r = &Row{Resource: name}
				rates[name] = r
			}
			var one Row
			one.count(i, func(l ask.Labels) bool { return resource(l) == name })
			r.Requests, r.Writes, r.Refused, r.Failed, r.P99 = r.Requests+one.Requests, r.Writes+one.Writes, r.Refused+one.Refused, r.Failed+one.Failed, max(r.P99, one.P99)
		}
	}
	for _, r := range rates {
		if r.Requests > 0 {
			rows = append(rows, *r)
		}
	}
	return rows
}

func resource(l ask.Labels) string {
	if l["group"] == "" {
		return l["resource"]
	}
	return l["resource"] + "." + l["group"]
}

// orders are what rows can be sorted by, the largest first.
var orders = map[string]func(Row) float64{
	"requests": func(r Row) float64 { return r.Requests },
	"writes":   func(r Row) float64 { return r.Writes },
	"refused":  func(r Row) float64 { return r.Refused + r.TooMany + r.Fenced },
	"p99":      func(r Row) float64 { return r.P99 },
	"places":   func(r Row) float64 { return r.Places },
	"cpu":      func(r Row) float64 { return r.CPU },
	"memory":   func(r Row) float64 { return float64(r.Memory) },
}

// Orders are all names that Sort knows.
var Orders = []string{"requests", "writes", "refused", "p99", "places", "cpu", "memory"}

// Sort sorts rows, the largest first. Rows that are alike are sorted by name.
func Sort(rows []Row, order string) error {
	of, ok := orders[order]
	if !ok {
		return fmt.Errorf("--sort %q: give one of %q", order, Orders)
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(-cmp.Compare(of(a), of(b)), cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Replica, b.Replica), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Name(), b.Name()))
	})
	return nil
}

// Name is the path of a row's logical cluster, or its name if nobody knows the path.
func (r Row) Name() string { return cmp.Or(r.Path, r.Cluster) }

// Latency is the row's P99 as a duration.
func (r Row) Latency() time.Duration { return time.Duration(r.P99 * float64(time.Second)) }
