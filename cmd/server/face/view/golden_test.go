package view_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/regent-project/regent/cmd/server/face/ask"
	"github.com/regent-project/regent/cmd/server/face/view"
	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/pkg/server/status/statustest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares a text with a file, and holds what is true of all texts.
func golden(t *testing.T, name, text string) {
	t.Helper()
	for i, c := range text {
		if c >= 0x7f || c < ' ' && c != '\n' {
			t.Errorf("%s: %q at byte %d is not plain ASCII", name, c, i)
		}
	}
	for line := range strings.Lines(text) {
		if strings.TrimRight(line, " \n") != strings.TrimRight(line, "\n") {
			t.Errorf("%s: blanks at the end of %q", name, line)
		}
	}
	file := filepath.Join("testdata", strings.NewReplacer(" ", "-", ",", "", ":", "", "'", "").Replace(name)+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text {
		t.Errorf("%s differs: go test ./cmd/server/face/view -update writes it anew. Got:\n%s", file, text)
	}
}

// narrow holds that people can read a text at 100 columns. Commands are never broken.
func narrow(t *testing.T, name, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if len(line) > 101 && !strings.Contains(line, "$ ") {
			t.Errorf("%s: %d columns: %s", name, len(line)-1, line)
		}
	}
}

func look(format string) view.Look { return view.Look{Format: format, Now: statustest.Now} }

func diagnosed(of status.Installation) status.Installation {
	of.Problems = status.Diagnose(of, statustest.Now)
	return of
}

func TestTheOverviewOfEachFault(t *testing.T) {
	all := append(statustest.Faults(), statustest.Fault{Name: "a lone shard", Of: statustest.Lone()}, statustest.Fault{Name: "three shards", Of: statustest.Three()},
		statustest.Fault{Name: "a shard of ranges", Of: statustest.Divided(), Kinds: []string{"no-leader"}})
	for _, f := range all {
		var text bytes.Buffer
		if err := view.Installation(&text, look(view.Table), diagnosed(f.Of)); err != nil {
			t.Fatal(err)
		}
		golden(t, "status "+f.Name, text.String())
		narrow(t, f.Name, text.String())
		for _, kind := range f.Kinds {
			if !strings.Contains(text.String(), kind) {
				t.Errorf("%s: no %s", f.Name, kind)
			}
		}
	}
}

func TestTheWideOverview(t *testing.T) {
	for name, of := range map[string]status.Installation{"status wide": statustest.Three(), "status wide, of ranges": statustest.Divided()} {
		var text bytes.Buffer
		if err := view.Installation(&text, look(view.Wide), diagnosed(of)); err != nil {
			t.Fatal(err)
		}
		golden(t, name, text.String())
	}
}

// What programs read are the types, with nothing left out and nothing added.
func TestProgramsReadTheTypes(t *testing.T) {
	for _, f := range statustest.Faults() {
		of := diagnosed(f.Of)
		var asJSON, asYAML bytes.Buffer
		if err := view.Installation(&asJSON, look(view.JSON), of); err != nil {
			t.Fatal(err)
		}
		if err := view.Installation(&asYAML, look(view.YAML), of); err != nil {
			t.Fatal(err)
		}
		for format, decode := range map[string]func(any) error{
			"json": func(into any) error { return json.Unmarshal(asJSON.Bytes(), into) },
			"yaml": func(into any) error { return yaml.UnmarshalStrict(asYAML.Bytes(), into) },
		} {
			var back status.Installation
			if err := decode(&back); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(back, of) {
				t.Errorf("%s: %s is not what was given", f.Name, format)
			}
		}
	}
}

func TestControllers(t *testing.T) {
	for _, name := range []string{"a controller does not stop", "a controller fails again and again", "a controller stalls", "a standby does not answer"} {
		for _, f := range statustest.Faults() {
			if f.Name != name {
				continue
			}
			var short, wide bytes.Buffer
			replicas := f.Of.Shards[0].Replicas
			if err := view.Controllers(&short, look(view.Table), replicas); err != nil {
				t.Fatal(err)
			}
			if err := view.Controllers(&wide, look(view.Wide), replicas); err != nil {
				t.Fatal(err)
			}
			narrow(t, name, short.String())
			golden(t, "controllers "+name, short.String()+"\n"+wide.String())
		}
	}
}

func TestAControllerIsToldInWhichRangesItIsNotWell(t *testing.T) {
	replicas := statustest.Divided().Shards[0].Replicas
	c := &replicas[0].Controllers[0]
	c.State, c.Since, c.Restarts, c.LastError, c.Failed = "failed", statustest.Now.Add(-time.Minute), 7, "no such table", statustest.Now.Add(-time.Minute)
	for _, k := range []int{1, 2, 3, 41} {
		c.Ranges = append(c.Ranges, status.ControllerOfRange{Range: k, State: "failed", Since: c.Since, Restarts: 1, LastError: c.LastError, Failed: c.Failed})
	}
	c.Ranges = append(c.Ranges, status.ControllerOfRange{Range: 50, State: "running", Since: c.Since, HeldBy: "2x8v", Pending: 30})
	var all, one bytes.Buffer
	if err := view.Controllers(&all, look(view.Table), replicas); err != nil {
		t.Fatal(err)
	}
	for i := range replicas {
		replicas[i].Controllers = replicas[i].Controllers[:1]
	}
	if err := view.Controller(&one, look(view.Table), replicas); err != nil {
		t.Fatal(err)
	}
	golden(t, "controllers of ranges", all.String()+"\n"+one.String())
}

func TestOneControllerHasItsStacks(t *testing.T) {
	for _, f := range statustest.Faults() {
		if f.Name != "a controller does not stop" && f.Name != "a controller fails on every replica" {
			continue
		}
		replicas := f.Of.Shards[0].Replicas
		for i := range replicas {
			replicas[i].Controllers = replicas[i].Controllers[:1]
		}
		var text bytes.Buffer
		if err := view.Controller(&text, look(view.Table), replicas); err != nil {
			t.Fatal(err)
		}
		golden(t, "controller, "+f.Name, text.String())
		if f.Name == "a controller does not stop" && !strings.Contains(text.String(), "goroutine 118") {
			t.Error("no stacks")
		}
	}
}

func TestTerms(t *testing.T) {
	terms := statustest.Terms("root", statustest.A, statustest.B)
	for _, format := range []string{view.Table, view.Wide, view.JSON} {
		var text bytes.Buffer
		if err := view.Terms(&text, look(format), terms); err != nil {
			t.Fatal(err)
		}
		golden(t, "terms "+format, text.String())
	}
	var text bytes.Buffer
	if err := view.Terms(&text, look(view.Table), status.Terms{Shard: "root"}); err != nil {
		t.Fatal(err)
	}
	golden(t, "terms none", text.String())
}

func TestChangesAreTheOnlyLinesOnAPipe(t *testing.T) {
	var text strings.Builder
	add := func(before, after []view.Fact) {
		for _, line := range view.Changes(statustest.Now, before, after) {
			text.WriteString(line + "\n")
		}
		text.WriteString("--\n")
	}
	well := view.Facts(statustest.Lone())
	add(nil, well)
	add(well, well)
	var wrong []view.Fact
	for _, f := range statustest.Faults() {
		if f.Name == "the leader's process dies, whatever of" {
			wrong = view.Facts(diagnosed(f.Of))
		}
	}
	add(well, wrong)
	add(wrong, well)
	golden(t, "changes", text.String())
}

// A record begins with the cause that the column has anyway.
func TestTheCauseOfATermsEndIsSaidOnce(t *testing.T) {
	var text strings.Builder
	terms := status.Terms{Shard: "root", Terms: []status.Term{{Epoch: 2, EndCause: "failed", EndReason: "failed: controller \"a\": no"}}}
	if err := view.Terms(&text, view.Look{Format: view.Wide, Now: statustest.Now}, terms); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(text.String(), "  failed: controller \"a\": no\n") {
		t.Error(text.String())
	}
}

// A first term has no leader before it, and a term may have nothing to write.
func TestATermSaysWhyThereIsNothing(t *testing.T) {
	terms := status.Terms{Shard: "root", Terms: []status.Term{
		{Epoch: 2, Replica: "b", Began: statustest.Now.Add(-31 * time.Second), Trigger: "death", Gap: 0.007, Phases: map[string]float64{"acquire": 0.002}},
		{Epoch: 1, Replica: "a", Began: statustest.Now.Add(-time.Hour), Ended: statustest.Now.Add(-31 * time.Second), EndCause: "death", Trigger: "none", Phases: map[string]float64{"first_write": 0.014}},
	}}
	var text strings.Builder
	if err := view.Terms(&text, look(view.Table), terms); err != nil {
		t.Fatal(err)
	}
	golden(t, "terms first", text.String())
	narrow(t, "terms first", text.String())
}

func TestTextFitsANarrowTerminal(t *testing.T) {
	for _, f := range statustest.Faults() {
		var text strings.Builder
		if err := view.Installation(&text, view.Look{Format: view.Table, Now: statustest.Now, Width: 60}, diagnosed(f.Of)); err != nil {
			t.Fatal(err)
		}
		_, problems, _ := strings.Cut(text.String(), "Problems: ")
		for line := range strings.Lines(problems) {
			words := strings.Fields(line)
			if len(words) > 1 && len(strings.TrimRight(line, "\n")) > 60 && words[0] != "$" && !strings.HasSuffix(words[0], ":") {
				t.Errorf("%s: %q has more than 60 columns", f.Name, line)
			}
		}
	}
}

// Two replicas of one name are two, and do not take turns.
func TestReplicasOfOneNameDoNotChange(t *testing.T) {
	for _, f := range statustest.Faults() {
		if f.Name == "two replicas have one name" {
			if lines := view.Changes(statustest.Now, view.Facts(f.Of), view.Facts(f.Of)); len(lines) > 0 {
				t.Errorf("%q", lines)
			}
			if lines := view.Changes(statustest.Now, nil, view.Facts(f.Of)); len(lines) != 3 || !strings.Contains(lines[2], statustest.A+" (2): standing by") {
				t.Errorf("%q", lines)
			}
		}
	}
}

// Ages in the text of a problem are no change.
func TestAProblemThatGetsOlderIsNoChange(t *testing.T) {
	problem := status.Problem{Severity: status.Critical, Kind: "no-leader", Shard: "root", What: "Nobody leads, for 3s."}
	before := view.Facts(status.Installation{Problems: []status.Problem{problem}})
	problem.What = "Nobody leads, for 4s."
	if lines := view.Changes(statustest.Now, before, view.Facts(status.Installation{Problems: []status.Problem{problem}})); len(lines) > 0 {
		t.Errorf("%q", lines)
	}
}

func TestUpgrades(t *testing.T) {
	replica := func(name, version string, newest int) status.Replica {
		return status.Replica{Name: name, Version: "v1.37.2+regent." + version, Format: &status.Format{Stored: 1, ReadableFrom: "v0.1.0", Oldest: 1, Newest: newest, Since: "v0.3.0"}}
	}
	of := status.Installation{
		Fronts: []status.Front{{Name: "front-0", Version: "v1.37.2+regent.v0.3.0"}, {Name: "front-1"}},
		Shards: []status.Shard{
			{Name: "root", Replicas: []status.Replica{replica("a", "v0.3.0", 2), replica("b", "v0.3.0", 2)}},
			{Name: "eu1", Replicas: []status.Replica{replica("a", "v0.3.0", 2), replica("b", "v0.2.1", 1), {Name: "c", Fault: "connection refused"}}},
			{Name: "us1", Replicas: []status.Replica{replica("a", "v0.2.1", 1)}},
			{Name: "ap1", Fault: "connection refused"},
		},
	}
	for name, format := range map[string]string{"upgrade status": view.Table, "upgrade status json": view.JSON} {
		var text bytes.Buffer
		if err := view.Upgrade(&text, look(format), view.VersionsOf(of, "v1.37.2+regent.v0.3.0")); err != nil {
			t.Fatal(err)
		}
		golden(t, name, text.String())
		if format == view.Table {
			narrow(t, name, text.String())
		}
	}
}

func TestTop(t *testing.T) {
	rows := []view.Row{
		{Shard: "root", Replica: statustest.A, State: "leading", Requests: 1234.5, Writes: 99.4, Refused: 0.5, Failed: 0, P99: 0.2, Now: 3, Watches: 120, Connections: 40, Etcd: 300, CPU: 1.25, Memory: 210 << 20, TooMany: 2, Fenced: 0},
		{Shard: "root", Replica: statustest.B, State: "standing by", Fault: "https://10.0.0.2:6443 does not answer: connection refused"},
	}
	for name, format := range map[string]string{"top": view.Table, "top wide": view.Wide, "top json": view.JSON} {
		var text bytes.Buffer
		if err := view.Top(&text, look(format), rows, view.ByReplica); err != nil {
			t.Fatal(err)
		}
		golden(t, name, text.String())
		if format == view.Table {
			narrow(t, name, text.String())
		}
	}
	var text bytes.Buffer
	if err := view.Top(&text, look(view.Table), []view.Row{{Resource: "workspaces.tenancy.kcp.io", Requests: 12, Writes: 3.25, P99: 0.05}}, view.ByResource); err != nil {
		t.Fatal(err)
	}
	golden(t, "top resources", text.String())
	rows = []view.Row{
		{Cluster: "1zq0c9vpn3t7hk2s", Path: "root:team-a", Requests: 812.5, Writes: 99.4, Refused: 3.5, TooMany: 2, Places: 4.25},
		{Cluster: "2ab1c9vpn3t7hk2s", Requests: 3, Writes: 1, Failed: 0.5},
		{Cluster: view.Others, Requests: 0.5},
		{Shard: "root", Replica: statustest.B, Fault: "https://10.0.0.2:6443 does not answer: connection refused"},
	}
	for name, format := range map[string]string{"top clusters": view.Table, "top clusters wide": view.Wide, "top clusters json": view.JSON} {
		text.Reset()
		if err := view.Top(&text, look(format), rows, view.ByCluster); err != nil {
			t.Fatal(err)
		}
		golden(t, name, text.String())
		if format == view.Table {
			narrow(t, name, text.String())
		}
	}
}

func TestTheReportOfADoctor(t *testing.T) {
	of := diagnosed(statustest.Lone())
	before, after := reading(t, "before", statustest.Now.Add(-2*time.Second)), reading(t, "after", statustest.Now)
	seen := ask.Measurement{Latencies: []time.Duration{time.Millisecond, 2 * time.Millisecond, 600 * time.Millisecond}, Within: time.Millisecond, Expires: statustest.Now.AddDate(1, 0, 0)}
	findings := view.Examine(view.Evidence{
		Of: of, Version: "v1.37.2+regent.1", Now: statustest.Now,
		Replicas: []ask.Replica{
			{Shard: "root", Name: statustest.A, Metrics: ask.Interval{Before: before, After: after}, Seen: seen},
			{Shard: "root", Name: statustest.B, Fault: "https://10.0.0.2:6443 does not answer: connection refused"},
		},
	})
	for name, format := range map[string]string{"doctor": view.Table, "doctor json": view.JSON} {
		var text bytes.Buffer
		if err := view.Report(&text, look(format), findings); err != nil {
			t.Fatal(err)
		}
		golden(t, name, text.String())
	}
}

func reading(t *testing.T, name string, at time.Time) ask.Reading {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".metrics"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := ask.ReadMetrics(text, at)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestColoursAreForTerminalsOnly(t *testing.T) {
	of := diagnosed(statustest.Faults()[0].Of)
	var plain, coloured bytes.Buffer
	if err := view.Installation(&plain, look(view.Table), of); err != nil {
		t.Fatal(err)
	}
	on := look(view.Table)
	on.Colour = true
	if err := view.Installation(&coloured, on, of); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(plain.String(), "\x1b") || !strings.Contains(coloured.String(), "\x1b[31mcritical\x1b[0m") {
		t.Errorf("plain %q, coloured %q", plain.String(), coloured.String())
	}
}

func TestUnknownFormatsAreRefused(t *testing.T) {
	if err := view.CheckFormat("xml"); err == nil || !strings.Contains(err.Error(), "xml") {
		t.Error(err)
	}
	for _, format := range view.Formats {
		if err := view.CheckFormat(format); err != nil {
			t.Error(err)
		}
	}
}
