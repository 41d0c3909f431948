package view_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regent-project/regent/cmd/server/face/ask"
	"github.com/regent-project/regent/cmd/server/face/view"
	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/pkg/server/status/statustest"
)

// healthy are metrics of a replica at which there is nothing to find.
var healthy = map[string]string{
	`etcd_request_duration_seconds_bucket{le="0.005"}`:                  "100",
	`etcd_request_duration_seconds_bucket{le="2"}`:                      "100",
	`etcd_request_duration_seconds_bucket{le="+Inf"}`:                   "100",
	`etcd_request_duration_seconds_count`:                               "100",
	`etcd_request_duration_seconds_sum`:                                 "1",
	`grpc_client_handled_total{grpc_code="DataLoss"}`:                   "0",
	`grpc_client_handled_total{grpc_code="ResourceExhausted"}`:          "0",
	`leader_election_slowpath_total`:                                    "3",
	`process_max_fds`:                                                   "1000",
	`process_open_fds`:                                                  "100",
	`regent_api_connections_refused_total{limit="total"}`:               "5",
	`regent_certificates_refused`:                                       "0",
	`regent_encryption_config_refused`:                                  "0",
	`regent_fencing_refused_total{cause="deposed"}`:                     "4",
	`regent_fencing_unfenced_writes_total{user="system:regent:leader"}`: "0",
	`regent_quota_refused_total{limit="objects"}`:                       "2",
	`regent_requests_refused_total{reason="full"}`:                      "9",
	`kubernetes_build_info{git_version="v1.37.2+regent.1"}`:             "1",
}

func read(t *testing.T, at time.Time, change map[string]string) ask.Reading {
	t.Helper()
	var names []string
	for name := range healthy {
		names = append(names, name)
	}
	slices.Sort(names)
	text := strings.Builder{}
	text.WriteString("# TYPE etcd_request_duration_seconds histogram\n")
	for _, name := range names {
		value := healthy[name]
		if changed, ok := change[name]; ok {
			value = changed
		}
		text.WriteString(name + " " + value + "\n")
	}
	r, err := ask.ReadMetrics([]byte(text.String()), at)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func examine(t *testing.T, after map[string]string, seen func(*ask.Measurement)) view.Findings {
	of := statustest.Lone()
	of.Shards[0].Replicas = of.Shards[0].Replicas[:1]
	measured := ask.Measurement{Latencies: []time.Duration{time.Millisecond, time.Millisecond, time.Second}, Within: time.Millisecond, Expires: statustest.Now.AddDate(1, 0, 0)}
	if seen != nil {
		seen(&measured)
	}
	return view.Examine(view.Evidence{Of: of, Version: "v1.37.2+regent.1", Now: statustest.Now, Replicas: []ask.Replica{{
		Shard: "root", Name: statustest.A, Seen: measured,
		Metrics: ask.Interval{Before: read(t, statustest.Now.Add(-2*time.Second), nil), After: read(t, statustest.Now, after)},
	}}})
}

func TestWhereAllIsWellEverythingIsLookedAtAndNothingFound(t *testing.T) {
	report := examine(t, nil, nil)
	if len(report.Problems) > 0 {
		t.Errorf("%+v", report.Problems)
	}
	if len(report.Checked) < 24 {
		t.Errorf("only %d checks", len(report.Checked))
	}
	for _, c := range report.Checked {
		if !c.OK || c.Result == "" || c.Name == "" || c.Of == "" {
			t.Errorf("%+v", c)
		}
	}
}

// cases are what doctor finds besides what replicas say.
var cases = []struct {
	kind     string
	severity status.Severity
	after    map[string]string
	seen     func(*ask.Measurement)
}{
	{"api-slow", status.Warning, nil, func(m *ask.Measurement) { m.Latencies = []time.Duration{time.Second, time.Second, time.Second} }},
	{"etcd-slow", status.Warning, map[string]string{`etcd_request_duration_seconds_bucket{le="2"}`: "150", `etcd_request_duration_seconds_bucket{le="+Inf"}`: "150", `etcd_request_duration_seconds_count`: "150"}, nil},
	{"etcd-alarm", status.Critical, map[string]string{`grpc_client_handled_total{grpc_code="ResourceExhausted"}`: "1"}, nil},
	{"etcd-alarm", status.Critical, map[string]string{`grpc_client_handled_total{grpc_code="DataLoss"}`: "1"}, nil},
	{"descriptors", status.Warning, map[string]string{`process_open_fds`: "800"}, nil},
	{"descriptors", status.Critical, map[string]string{`process_open_fds`: "950"}, nil},
	{"renewals-repeated", status.Notice, map[string]string{`leader_election_slowpath_total`: "4"}, nil},
	{"fencing-refusals", status.Warning, map[string]string{`regent_fencing_refused_total{cause="deposed"}`: "5"}, nil},
	{"fencing-refusals", status.Warning, map[string]string{`regent_fencing_unfenced_writes_total{user="system:regent:leader"}`: "1"}, nil},
	{"refused-requests", status.Warning, map[string]string{`regent_requests_refused_total{reason="full"}`: "10"}, nil},
	{"refused-requests", status.Warning, map[string]string{`regent_api_connections_refused_total{limit="total"}`: "6"}, nil},
	{"quota", status.Notice, map[string]string{`regent_quota_refused_total{limit="objects"}`: "3"}, nil},
	{"files-refused", status.Warning, map[string]string{`regent_certificates_refused`: "1"}, nil},
	{"files-refused", status.Warning, map[string]string{`regent_encryption_config_refused`: "1"}, nil},
	{"serving-certificate", status.Warning, nil, func(m *ask.Measurement) { m.Expires = statustest.Now.AddDate(0, 0, 29) }},
	{"serving-certificate", status.Critical, nil, func(m *ask.Measurement) { m.Expires = statustest.Now.AddDate(0, 0, 6) }},
	{"clock", status.Warning, nil, func(m *ask.Measurement) { m.Ahead = -1100 * time.Millisecond }},
}

func TestEachFindingIsNamedAlone(t *testing.T) {
	for _, c := range cases {
		report := examine(t, c.after, c.seen)
		if len(report.Problems) != 1 || report.Problems[0].Kind != c.kind || report.Problems[0].Severity != c.severity {
			t.Errorf("%s: %+v", c.kind, report.Problems)
			continue
		}
		if failed := slices.DeleteFunc(report.Checked, func(c view.Check) bool { return c.OK }); len(failed) != 1 {
			t.Errorf("%s: failed checks %+v", c.kind, failed)
		}
		if p := report.Problems[0]; !strings.HasSuffix(p.What, ".") || !strings.Contains(p.Remedy, "\nSee docs/CLI.md#doctor") || strings.Contains(p.What+p.Remedy, "%!") {
			t.Errorf("%s: %+v", c.kind, p)
		}
	}
}

// A clock that is far off within what the slowest answer could explain is no finding.
func TestASlowAnswerIsNoClockThatIsWrong(t *testing.T) {
	report := examine(t, nil, func(m *ask.Measurement) { m.Ahead, m.Within = 2*time.Second, 1500*time.Millisecond })
	if len(report.Problems) > 0 {
		t.Errorf("%+v", report.Problems)
	}
}

func TestAnotherVersionIsANotice(t *testing.T) {
	of := statustest.Lone()
	report := view.Examine(view.Evidence{Of: of, Version: "v1.37.2+regent.2", Now: statustest.Now, Replicas: []ask.Replica{{Shard: "root", Name: statustest.A, Metrics: ask.Interval{Before: read(t, statustest.Now, nil), After: read(t, statustest.Now, nil)}}}})
	if len(report.Problems) != 1 || report.Problems[0].Kind != "client-version" {
		t.Errorf("%+v", report.Problems)
	}
}

// What docs/CLI.md lists is what doctor finds, and each metric that it reads of Regent's own is documented, so it
// exists.
func TestTheDocsListWhatIsFound(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/CLI.md")
	if err != nil {
		t.Fatal(err)
	}
	var metrics strings.Builder
	for _, name := range []string{"OPERATIONS.md", "CERTIFICATES.md"} {
		content, err := os.ReadFile("../../../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		metrics.Write(content)
	}
	kinds := map[string]bool{"client-version": true}
	for _, c := range cases {
		kinds[c.kind] = true
	}
	for kind := range kinds {
		if !strings.Contains(string(page), "| `"+kind+"`") {
			t.Errorf("%s is not in docs/CLI.md", kind)
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| .* \\| `([a-z-]+)`.* \\|").FindAllStringSubmatch(string(page), -1) {
		if !kinds[row[1]] {
			t.Errorf("docs/CLI.md lists %s, which no case has", row[1])
		}
	}
	for _, file := range []string{"looks.go", "rows.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`"((?:regent|leader)_[a-z_]+)"`).FindAllStringSubmatch(string(source), -1)
		if len(names) < 3 {
			t.Errorf("%s reads only %d metrics", file, len(names))
		}
		for _, name := range names {
			if !strings.Contains(metrics.String(), name[1]) {
				t.Errorf("%s reads %s, which is not documented", file, name[1])
			}
		}
	}
}
