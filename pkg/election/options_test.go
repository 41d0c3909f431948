package election_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// options are what two replicas of a program have been given, all that decides how a leader is succeeded.
type options struct {
	mode, fence, detector, detection string
}

var choices = struct{ modes, fences, detectors, detections []string }{
	[]string{"lease", "coordinated", "for-life"},
	[]string{"none", "Fenced", "SucceedUnfenced", "both"},
	[]string{"none", "one"},
	[]string{"unset", "off", "crash", "suspect"},
}

func (o options) apply(p *peer) func(*election.Config) {
	return func(cfg *election.Config) {
		cfg.Replica = p.Contact().Address
		cfg.Mode = map[string]election.Mode{"lease": election.Renewed{}, "coordinated": election.Coordinated{BinaryVersion: "1.0.0", EmulationVersion: "1.0.0"}, "for-life": election.ForLife{}}[o.mode]
		cfg.Fenced, cfg.SucceedUnfenced = o.fence == "Fenced" || o.fence == "both", o.fence == "SucceedUnfenced" || o.fence == "both"
		if o.detector == "one" {
			cfg.Detector = p
		}
		if o.detection != "unset" {
			cfg.Detection = election.Detection(o.detection)
		}
	}
}

// succession returns when a standby leads after a sign of the leader's process, which does not write from then on.
func (o options) succession(t *testing.T, sign election.Sign) (when string) {
	synctest.Test(t, func(t *testing.T) {
		network, store := newNetwork(), electiontest.NewStore(leaseName)
		ofHolder, ofStandby := network.join("a"), network.join("b")
		cfg := newConfig(store.Client())
		cfg.Candidates = electiontest.NewStore(leaseName).Client().Candidates()
		o.apply(network.join("c"))(&cfg)
		if _, err := election.New(cfg); err != nil {
			when = "refused"
			return
		}
		holder := start(t, store, nil, o.apply(ofHolder))
		time.Sleep(10 * time.Second) // an electing controller takes its time
		holder.mustLead()
		standby := start(t, store, nil, o.apply(ofStandby))
		time.Sleep(10 * time.Second)
		cutOff(holder)
		ofHolder.seem(sign)
		at := time.Now()
		time.Sleep(2*lease + 10*time.Second)
		switch led, leads := standby.leading(); {
		case !leads:
			when = "never"
		case led.began.Sub(at) < 2*time.Second:
			when = "at once"
		default:
			when = "expiry"
		}
		holder.client.Always(electiontest.Fault{})
		standby.stop()
		holder.stop()
	})
	return when
}

// The table in the package comment has each combination once, and says of it what happens.
func TestEachCombinationOfOptionsDoesWhatTheDocsSay(t *testing.T) {
	rows := documented(t)
	for _, mode := range choices.modes {
		for _, fence := range choices.fences {
			for _, detector := range choices.detectors {
				for _, detection := range choices.detections {
					o := options{mode, fence, detector, detection}
					t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
						var of []row
						for _, r := range rows {
							if r.has(o) {
								of = append(of, r)
							}
						}
						dead, silent := o.succession(t, election.Dead), o.succession(t, election.Silent)
						if len(of) != 1 || of[0].dead != dead || of[0].silent != silent {
							t.Errorf("dead: %s, silent: %s; the docs say %+v", dead, silent, of)
						}
					})
				}
			}
		}
	}
}

// row is one of the table. A cell of options has several with commas, or "any".
type row struct {
	mode, fence, detector, detection []string
	dead, silent                     string
}

func (r row) has(o options) bool {
	is := func(cell []string, value string) bool { return cell[0] == "any" || slices.Contains(cell, value) }
	return is(r.mode, o.mode) && is(r.fence, o.fence) && is(r.detector, o.detector) && is(r.detection, o.detection)
}

func documented(t *testing.T) (rows []row) {
	t.Helper()
	comment, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(comment), "// # Options together\n")
	table, _, end := strings.Cut(table, "// # ")
	if !ok || !end {
		t.Fatal("the package comment has no table of options")
	}
	for line := range strings.Lines(table) {
		line, ok := strings.CutPrefix(line, "//\t")
		if !ok || strings.HasPrefix(line, "mode ") {
			continue
		}
		cells := regexp.MustCompile(" {2,}").Split(strings.TrimSpace(line), -1)
		if len(cells) != 6 {
			t.Fatalf("%d cells: %s", len(cells), line)
		}
		list := func(cell string) []string { return strings.Split(cell, ", ") }
		rows = append(rows, row{list(cells[0]), list(cells[1]), list(cells[2]), list(cells[3]), cells[4], cells[5]})
	}
	return rows
}
