package status_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/pkg/server/status/statustest"
)

func TestNothingIsWrongWhereAllIsWell(t *testing.T) {
	for _, of := range []status.Installation{statustest.Lone(), statustest.Three(), {}} {
		if found := status.Diagnose(of, statustest.Now); len(found) > 0 {
			t.Errorf("%+v", found)
		}
	}
}

// Each fault has exactly the problems that it should have: none is missed, and none is made up.
func TestEachFaultIsNamed(t *testing.T) {
	for _, f := range statustest.Faults() {
		t.Run(f.Name, func(t *testing.T) {
			var kinds []string
			for _, p := range status.Diagnose(f.Of, statustest.Now) {
				kinds = append(kinds, p.Kind)
			}
			if !slices.Equal(kinds, f.Kinds) {
				t.Errorf("problems %q, want %q", kinds, f.Kinds)
			}
		})
	}
}

func TestDiagnosingChangesNothing(t *testing.T) {
	for _, f := range statustest.Faults() {
		before, _ := json.Marshal(f.Of)
		status.Diagnose(f.Of, statustest.Now)
		if after, _ := json.Marshal(f.Of); string(before) != string(after) {
			t.Errorf("%s: changed", f.Name)
		}
	}
}

// What is said of others is true of them: a lone etcd that hangs has no other member, and users do not write while no
// replica is ready.
func TestNothingIsSaidOfWhatElseWorksIfNothingDoes(t *testing.T) {
	of := statustest.Lone()
	for i := range of.Shards[0].Replicas {
		r := &of.Shards[0].Replicas[i]
		r.Etcd = []status.Member{{Endpoint: "https://etcd-0:2379"}}
		r.NotReady = []status.Check{{Name: "etcd", Error: "etcd does not answer"}}
		r.Election.State, r.Election.Leader, r.Election.Leaderless = "standby", "", 9
	}
	of.Shards[0].Leader = ""
	var text strings.Builder
	for _, p := range status.Diagnose(of, statustest.Now) {
		text.WriteString(p.What + "\n")
	}
	for _, want := range []string{"Nobody leads shard root", "no replica is ready", "No member does"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("nothing says %q:\n%s", want, text.String())
		}
	}
	for _, not := range []string{"go on", "nother one does"} {
		if strings.Contains(text.String(), not) {
			t.Errorf("something says %q:\n%s", not, text.String())
		}
	}
}

func TestTheWorstComesFirst(t *testing.T) {
	of := statustest.Lone()
	replicas := of.Shards[0].Replicas
	replicas[1].Version = "v0"
	replicas[1].Election.Contact.State = "refused"
	replicas[0].Certificates[0].Expires = statustest.Now
	found := status.Diagnose(of, statustest.Now)
	var severities []status.Severity
	for _, p := range found {
		severities = append(severities, p.Severity)
	}
	if want := []status.Severity{status.Critical, status.Warning, status.Notice}; !slices.Equal(severities, want) {
		t.Errorf("%q", severities)
	}
	if got := status.Worst(found); got != status.Critical {
		t.Errorf("the worst is %q", got)
	}
	if got := status.Worst(nil); got != "" {
		t.Errorf("the worst of nothing is %q", got)
	}
}

// The boundaries that operators are told of.
func TestProblemsBeginWhereTheDocsSay(t *testing.T) {
	now := statustest.Now
	day := 24 * time.Hour
	for _, c := range []struct {
		name   string
		change func(*status.Installation)
		want   status.Severity
	}{
		{"a certificate of 31 days", expiring(31 * day), ""},
		{"a certificate of 29 days", expiring(29 * day), status.Warning},
		{"a certificate of 8 days", expiring(8 * day), status.Warning},
		{"a certificate of 6 days", expiring(6 * day), status.Critical},
		{"a clock that is 1 s ahead", clock(time.Second), ""},
		{"a clock that is 1.1 s ahead", clock(1100 * time.Millisecond), status.Warning},
		{"an answer that came 3 s before", clock(-3 * time.Second), ""},
		{"a clock that is 3.1 s behind", clock(-3100 * time.Millisecond), status.Warning},
		{"a renewal 5 s ago", renewed(5 * time.Second), ""},
		{"a renewal 6 s ago", renewed(6 * time.Second), status.Warning},
		{"a renewal 16 s ago", renewed(16 * time.Second), status.Critical},
		{"a controller that starts for 2 minutes", starting(2 * time.Minute), ""},
		{"a controller that starts for 3 minutes", starting(3 * time.Minute), status.Warning},
	} {
		of := statustest.Lone()
		c.change(&of)
		if got := status.Worst(status.Diagnose(of, now)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func expiring(in time.Duration) func(*status.Installation) {
	return func(i *status.Installation) { i.Shards[0].Replicas[0].Certificates[0].Expires = statustest.Now.Add(in) }
}

func clock(ahead time.Duration) func(*status.Installation) {
	return func(i *status.Installation) {
		r := &i.Shards[0].Replicas[1]
		r.Observed = r.Observed.Add(ahead)
	}
}

func renewed(ago time.Duration) func(*status.Installation) {
	return func(i *status.Installation) { i.Shards[0].Replicas[0].Election.Renewed = statustest.Now.Add(-ago) }
}

func starting(since time.Duration) func(*status.Installation) {
	return func(i *status.Installation) {
		c := &i.Shards[0].Replicas[0].Controllers[0]
		c.State, c.Since = "starting", statustest.Now.Add(-since)
	}
}

// Terms that somebody asked to end are no fault, however many they are.
func TestOnlyTermsThatNobodyAskedForAreFlapping(t *testing.T) {
	for name, c := range map[string]struct {
		cause, reason string
		want          bool
	}{
		"a step down by request":   {"step down", "step down: on request: asked by admin: maintenance", false},
		"a preferred standby":      {"step down", "step down: on request: candidate b is preferred", false},
		"SIGTERM":                  {"shutdown", "shutdown: the process stops", false},
		"a controller that failed": {"step down", "step down: controllers failed: workspace: on request: of nobody", true},
		"a slow etcd":              {"renew deadline", "", true},
		"a cause that nobody knew": {"", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			of := statustest.Lone()
			of.Shards[0].Terms = nil
			for n := range 6 {
				of.Shards[0].Terms = append(of.Shards[0].Terms, status.Term{
					Epoch: int64(9 - n), Replica: statustest.A, Began: statustest.Now.Add(-time.Duration(1+n) * time.Minute), EndCause: c.cause, EndReason: c.reason,
				})
			}
			flaps := func() bool {
				return slices.ContainsFunc(status.Diagnose(of, statustest.Now), func(p status.Problem) bool { return p.Kind == "flapping" })
			}
			if got := flaps(); got != c.want {
				t.Errorf("flapping: %v, want %v", got, c.want)
			}
			of.Shards[0] = status.Shard{Name: of.Shards[0].Name, Fault: "it does not answer", Terms: of.Shards[0].Terms}
			if flaps() {
				t.Error("a shard that does not answer is flapping, as it was before")
			}
		})
	}
}

// What counts is said by its causes. A first term follows none.
func TestFlappingSaysWhatEndedTheTerms(t *testing.T) {
	of := statustest.Lone()
	of.Shards[0].Terms = nil
	for n, cause := range []string{"", "death", "failed", "death", "step down", "shutdown"} {
		term := status.Term{Epoch: int64(6 - n), Began: statustest.Now.Add(-time.Duration(1+n) * time.Minute), EndCause: cause, Trigger: "release"}
		if cause == "step down" {
			term.EndReason = "step down: on request: asked by admin: maintenance"
		}
		of.Shards[0].Terms = append(of.Shards[0].Terms, term)
	}
	of.Shards[0].Terms[5].Trigger = "none"
	of.Shards[0].Terms[0].Trigger = "suspicion"
	said := func() string {
		for _, p := range status.Diagnose(of, statustest.Now) {
			if p.Kind == "flapping" {
				return p.What
			}
		}
		return ""
	}
	if got := said(); got != "" {
		t.Errorf("three that nobody asked for: %q", got)
	}
	of.Shards[0].Terms[4].EndReason = "step down: controllers \"a\" still fail on this replica: another may try"
	if got, want := said(), "Shard root has begun 4 terms in the last 10 minutes that nobody asked for. Causes: death (2), failed (1), step down (1)."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The problem and the alert are two ways to hear of the same.
func TestFlappingIsWhatTheAlertFiresFor(t *testing.T) {
	rules, err := os.ReadFile("../../../deploy/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, alert, _ := strings.Cut(string(rules), "alert: RegentLeaderChangesOften\n")
	alert, _, _ = strings.Cut(alert, "- alert:")
	match := regexp.MustCompile(`(?s)\[(\w+)\].*\[(\w+)\]\)\)\) / regent:leases:max > (\d+)\.5\n.*description: '(\w+) terms or more that nobody asked for .* within (\d+) minutes`).FindStringSubmatch(alert)
	if match == nil || match[1] != match[2] || match[4] != "Four" {
		t.Fatalf("%q in:\n%s", match, alert)
	}
	period, err := time.ParseDuration(match[1])
	if err != nil || match[5]+"m0s" != period.String() {
		t.Fatalf("%v: %q", err, match)
	}
	most, err := strconv.Atoi(match[3])
	if err != nil {
		t.Fatal(err)
	}
	flaps := func(terms int, within time.Duration) bool {
		of := statustest.Lone()
		of.Shards[0].Terms = nil
		for n := range terms {
			of.Shards[0].Terms = append(of.Shards[0].Terms, status.Term{Epoch: int64(9 - n), Began: statustest.Now.Add(-within), EndCause: "death", Trigger: "death"})
		}
		return slices.ContainsFunc(status.Diagnose(of, statustest.Now), func(p status.Problem) bool { return p.Kind == "flapping" })
	}
	if flaps(most, time.Minute) || !flaps(most+1, period-time.Second) || flaps(most+1, period) {
		t.Errorf("the alert fires for more than %d terms in %v, and the problem is another one", most, period)
	}
}

// Terms of different ranges have nothing to do with each other: one death begins many.
func TestTheTermsOfEachRangeAreCountedByThemselves(t *testing.T) {
	flaps := func(ranges, terms int) bool {
		of := statustest.Lone()
		of.Shards[0].Terms = nil
		for n := range terms {
			for k := range ranges {
				of.Shards[0].Terms = append(of.Shards[0].Terms, status.Term{Range: k, Epoch: int64(9 - n), Began: statustest.Now.Add(-time.Minute), EndCause: "death", Trigger: "death"})
			}
		}
		return slices.ContainsFunc(status.Diagnose(of, statustest.Now), func(p status.Problem) bool { return p.Kind == "flapping" })
	}
	if flaps(64, 1) || !flaps(2, 4) {
		t.Error("the terms of all ranges are counted together")
	}
}

// A lease of before a restore is waited for, and nothing is wrong with its holder's address.
func TestALeaseOfBeforeTheStartIsNoFaultOfTheNetwork(t *testing.T) {
	of := statustest.Lone()
	s := &of.Shards[0]
	s.Leader, s.Terms = "", nil
	for i := range s.Replicas {
		r := &s.Replicas[i]
		r.Started, r.Observed = statustest.Now.Add(-5*time.Second), statustest.Now
		r.Election = status.Election{
			Lease: "kube-system/regent-controllers", Mode: "lease", State: "standing by", Holder: "gone", Leader: "gone", Duration: 15,
			Renewed: statustest.Now.Add(-2 * time.Hour), Contact: &status.Contact{State: "refused"},
		}
	}
	said := func() (what string) {
		for _, p := range status.Diagnose(of, statustest.Now) {
			if p.Kind == "contact" {
				what += string(p.Severity) + ": " + p.What + "\n" + p.Remedy + "\n"
			}
		}
		return what
	}
	if got := said(); strings.Contains(got, "another machine") || strings.Count(got, "notice: Replica") != 2 || !strings.Contains(got, "last renewed 2h0m0s ago, before it started") || !strings.Contains(got, "expires within 15 s") {
		t.Errorf("it says %q", got)
	}
	for i := range s.Replicas {
		s.Replicas[i].Election.Renewed = statustest.Now.Add(-6 * time.Second)
	}
	if got := said(); strings.Count(got, "another machine may have the address") != 2 {
		t.Errorf("of a lease that may have a living holder it says %q", got)
	}
}

// Whatever docs/FAILOVER.md says that standbys act on, and each state of contact that needs somebody, has a fault of
// its name.
func TestEachLineOfTheFailoverTableHasAFault(t *testing.T) {
	page := read(t, "FAILOVER.md")
	names := map[string]bool{}
	for _, f := range statustest.Faults() {
		names[f.Name] = true
	}
	lines := 0
	section := page[strings.Index(page, "## What a standby acts on"):strings.Index(page, "## The probe")]
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]+) \|`).FindAllStringSubmatch(section, -1) {
		if row[1] == "what happens" {
			continue
		}
		if lines++; !names[row[1]] {
			t.Errorf("no fault %q", row[1])
		}
	}
	section = page[strings.Index(page, "## Addresses that lie"):strings.Index(page, "## Handover")]
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|").FindAllStringSubmatch(section, -1) {
		for _, state := range regexp.MustCompile("[a-z]+").FindAllString(row[1], -1) {
			if lines++; state != "alive" && state != "idle" && !names["contact "+state] {
				t.Errorf("no fault of contact %q", state)
			}
		}
	}
	if lines < 16 {
		t.Errorf("only %d lines found", lines)
	}
}

// A remedy has something to do, a section of the docs that exists, and its kind is in the table of docs/OPERATIONS.md.
func TestEachRemedyCanBeActedOn(t *testing.T) {
	table := read(t, "OPERATIONS.md")
	seen := map[string]bool{}
	for _, f := range statustest.Faults() {
		for _, p := range status.Diagnose(f.Of, statustest.Now) {
			seen[p.Kind] = true
			lines := strings.Split(p.Remedy, "\n")
			if len(lines) < 2 || !strings.HasPrefix(lines[len(lines)-1], "See docs/") {
				t.Errorf("%s: remedy %q", p.Kind, p.Remedy)
			}
			for _, link := range regexp.MustCompile(`docs/([A-Z]+\.md)#([a-z0-9-]+)`).FindAllStringSubmatch(p.Remedy, -1) {
				if !slices.Contains(anchors(read(t, link[1])), link[2]) {
					t.Errorf("%s: no section %s", p.Kind, link[0])
				}
			}
			if !strings.HasSuffix(p.What, ".") || strings.Contains(p.What, "\n") || strings.Contains(p.What, "%!") || strings.Contains(p.Remedy, "%!") {
				t.Errorf("%s: what %q, remedy %q", p.Kind, p.What, p.Remedy)
			}
			if !strings.Contains(table, "| `"+p.Kind+"` |") {
				t.Errorf("%s is not in docs/OPERATIONS.md", p.Kind)
			}
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| (?:critical|warning|notice)").FindAllStringSubmatch(table, -1) {
		if !seen[row[1]] {
			t.Errorf("%s is documented, and no fault has it", row[1])
		}
	}
}

// anchors are the links to a page's headings.
func anchors(page string) (all []string) {
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		plain := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		all = append(all, strings.ReplaceAll(plain, " ", "-"))
	}
	return all
}

func read(t *testing.T, page string) string {
	t.Helper()
	content, err := os.ReadFile("../../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
