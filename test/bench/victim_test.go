package bench

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/regent-project/regent/test/e2e/harness"
)

// BenchmarkVictim is kill -9 of leaders with more and more memory, in turns: a kernel takes back the memory of a
// process before it closes its connections, and only then can anybody know. It prints two tables, of which the second
// says which part of a takeover took how long, as the successor's own log has it. What was before the first is what the
// kernel took. Every failover counts.
func BenchmarkVictim(b *testing.B) {
	victims := []*victim{{mib: 0}, {mib: 256}, {mib: 1024}, {mib: 256, huge: true}, {mib: 1024, huge: true}}
	const most = 2
	rounds, began, said := min(most, *victimsFlag), time.Now(), ""
	for round := range rounds {
		for i := range victims { // nobody is always the first
			v := victims[(i+round)%len(victims)]
			b.Run(strings.ReplaceAll(v.name(), " ", "-"), func(b *testing.B) {
				m := start(b, fmt.Sprintf("--ballast-mib=%d", v.mib), fmt.Sprintf("--ballast-huge-pages=%t", v.huge))
				if said == "" {
					said = versions(b)
				}
				for range share(*victimsFlag, round, rounds) {
					v.take(b, m)
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
	table, parts := tableHead, partsHead
	for _, v := range victims {
		table, parts = table+row{event: "kill -9", name: v.name(), samples: v.samples}.String(), parts+v.parts()
	}
	fmt.Printf("\n%s\n%s\n%s.\nTransparent huge pages: %s.\n%s\n", table, parts, said, hugePages(), closing(began))
}

// victim is a leader that holds so much memory more than it needs.
type victim struct {
	mib      int
	huge     bool
	samples  []sample
	phases   []phases
	resident []int // of the leaders, in MiB
	inHuge   []int // of that, in huge pages
}

func (v *victim) name() string {
	name := fmt.Sprintf("%d MiB more", v.mib)
	if v.huge {
		name += " in huge pages"
	}
	return name
}

func (v *victim) take(b *testing.B, m *machine) {
	v.resident, v.inHuge = append(v.resident, m.leader.ResidentMiB()), append(v.inHuge, m.leader.HugeMiB())
	successor := m.standby
	took := ours{}.turn(b, m, syscall.SIGKILL)
	var told []string
	harness.Eventually(b, "the successor's log tells of the takeover", func() bool {
		told = successor.Lines(`"Takeover" `, `trigger="death"`)
		return len(told) == 1
	})
	p, broke, err := parsePhases(told[0])
	if err != nil {
		b.Fatal(err)
	}
	p["kernel"] = broke.Sub(took.began)
	v.samples, v.phases = append(v.samples, took), append(v.phases, p)
	progress("kill -9, %s, %d of %d: %s, of which %s until the stream broke, load average %.2f", v.name(), len(v.samples), *victimsFlag,
		show(took.took), show(p["kernel"]), took.load)
}

const partsHead = `| the leader holds | resident | in huge pages | until its stream breaks, median (p90, max) | detect | break | acquire | first write |
|---|---|---|---|---|---|---|---|
`

// parts are medians, but for what the kernel took.
func (v *victim) parts() string {
	if len(v.samples) == 0 {
		return ""
	}
	of := func(name string) (all []time.Duration) {
		for _, p := range v.phases {
			all = append(all, p[name])
		}
		return all
	}
	kernel := of("kernel")
	return fmt.Sprintf("| %s | %d MiB | %d MiB | %s (%s, %s) | %s | %s | %s | %s |\n", v.name(), slices.Max(v.resident), slices.Max(v.inHuge),
		show(median(kernel)), show(percentile(kernel, 90)), show(slices.Max(kernel)),
		show(median(of("detect"))), show(median(of("break"))), show(median(of("acquire"))), show(median(of("first_write"))))
}

// phases are those of one takeover, by name.
type phases map[string]time.Duration

var (
	phasePattern = regexp.MustCompile(` (\w+)="([0-9.]+[a-zµ]+)"`)
	logTime      = regexp.MustCompile(`^I(\d{4} \d\d:\d\d:\d\d\.\d{6}) `)
)

// parsePhases reads the line that every takeover writes, at the end of the last phase, and makes out when the first
// began.
func parsePhases(line string) (p phases, start time.Time, err error) {
	p = phases{}
	for _, found := range phasePattern.FindAllStringSubmatch(line, -1) {
		if p[found[1]], err = time.ParseDuration(found[2]); err != nil {
			return nil, start, fmt.Errorf("phase %s in %q: %w", found[1], line, err)
		}
	}
	for _, name := range []string{"detect", "break", "acquire", "first_reconcile", "first_write"} {
		if _, ok := p[name]; !ok {
			return nil, start, fmt.Errorf("no phase %s in %q", name, line)
		}
	}
	told := logTime.FindStringSubmatch(line)
	if told == nil {
		return nil, start, fmt.Errorf("no time in %q", line)
	}
	ended, err := time.ParseInLocation("2006 0102 15:04:05.000000", fmt.Sprintf("%d %s", time.Now().Year(), told[1]), time.Local)
	return p, ended.Add(-max(p["first_reconcile"], p["first_write"]) - p["acquire"] - p["break"] - p["detect"]), err
}

// hugePages is what the machine says of them.
func hugePages() string {
	enabled, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	if err != nil {
		return "none"
	}
	return strings.TrimSpace(string(enabled))
}

func TestPhasesAreReadFromTheLogLine(t *testing.T) {
	const line = `I1121 15:33:50.123456    4711 timeline.go:123] "Takeover" epoch=2 trigger="death" detect="1.7ms" break="680µs" acquire="4.89ms" caches="2.42ms" first_reconcile="2.45ms" first_write="1.005s"`
	p, began, err := parsePhases(line)
	if err != nil {
		t.Fatal(err)
	}
	if p["detect"] != 1700*time.Microsecond || p["break"] != 680*time.Microsecond || p["first_write"] != 1005*time.Millisecond {
		t.Errorf("%v", p)
	}
	if got := began.Format("0102 15:04:05.000000"); got != "1121 15:33:49.111186" {
		t.Errorf("it began at %s", got)
	}
	if _, _, err := parsePhases(strings.ReplaceAll(line, "break=", "brake=")); err == nil {
		t.Error("a line without a phase was read")
	}
}
