package election_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

func TestTheDrainTimeoutDefaultsToHalfTheRenewDeadlineAtMost5s(t *testing.T) {
	cfg := election.DefaultConfig()
	for renew, want := range map[time.Duration]time.Duration{20 * time.Second: 5 * time.Second, 4 * time.Second: 2 * time.Second} {
		cfg.RenewDeadline = renew
		if got := cfg.EffectiveDrainTimeout(); got != want {
			t.Errorf("with a renew deadline of %v the drain timeout is %v, want %v", renew, got, want)
		}
	}
}

func TestFaultsNameTheFields(t *testing.T) {
	for want, change := range map[string]func(*election.Config){
		`Namespace "" is not a namespace name`: func(c *election.Config) { c.Namespace = "" },
		`Name "A/b" is not a Lease name`:       func(c *election.Config) { c.Name = "A/b" },
		`Cluster "root:team-a" is not the name of a logical cluster: give the name, and not the path. In that workspace this prints it: kubectl get logicalcluster cluster`: func(c *election.Config) {
			c.Cluster = "root:team-a"
		},
		"at most 256 bytes of UTF-8":                        func(c *election.Config) { c.Replica = strings.Repeat("h", 257) },
		"LeaseDuration 500ms must be whole seconds":         func(c *election.Config) { c.LeaseDuration = time.Second / 2 },
		"RenewDeadline 15s must be below LeaseDuration 15s": func(c *election.Config) { c.RenewDeadline = c.LeaseDuration },
		"Priority and Preempt contradict Mode=coordinated":  func(c *election.Config) { c.Mode, c.Preempt = election.Coordinated{}, true },
		"Detection=suspect contradicts Mode=for-life":       func(c *election.Config) { c.Mode, c.Detection = election.ForLife{}, election.DetectSuspect },
		`BinaryVersion "new" is not a version`: func(c *election.Config) {
			c.Mode = election.Coordinated{BinaryVersion: "new", EmulationVersion: "1.0.0"}
		},
		`EmulationVersion "" is not a version`: func(c *election.Config) { c.Mode = election.Coordinated{BinaryVersion: "1.0.0"} },
		"EmulationVersion 2.0.0 is newer than BinaryVersion 1.0.0": func(c *election.Config) {
			c.Mode = election.Coordinated{BinaryVersion: "1.0.0", EmulationVersion: "2.0.0"}
		},
		"Owner {APIVersion:v1 Kind:Pod Name: UID: Controller:<nil> BlockOwnerDeletion:<nil>} is incomplete": func(c *election.Config) {
			c.Mode = election.ForLife{Owner: &metav1.OwnerReference{APIVersion: "v1", Kind: "Pod"}}
		},
		"DrainTimeout 10s must be below RenewDeadline 10s": func(c *election.Config) { c.DrainTimeout = c.RenewDeadline },
		"lower DrainTimeout or RetryPeriod":                func(c *election.Config) { c.RenewDeadline, c.DrainTimeout = 14*time.Second, 13*time.Second },
	} {
		cfg := newConfig(nil)
		change(&cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "--") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Without a Detector a leader does not know its standbys, and priorities would do nothing.
func TestPrioritiesNeedADetector(t *testing.T) {
	for name, change := range map[string]func(*election.Config){
		"priority": func(c *election.Config) { c.Priority = 1 },
		"preempt":  func(c *election.Config) { c.Preempt = true },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := newConfig(electiontest.NewStore(leaseName).Client())
			change(&cfg)
			if _, err := election.New(cfg); err == nil || !strings.Contains(err.Error(), "need a Config.Detector") {
				t.Errorf("without a Detector: %v", err)
			}
			if _, err := election.NewUnelected(cfg); err != nil {
				t.Errorf("without election, where they are ignored: %v", err)
			}
			cfg.Detector = newNetwork().join("a")
			if _, err := election.New(cfg); err != nil {
				t.Errorf("with a Detector: %v", err)
			}
		})
	}
}

func TestAModeIsFoundByItsName(t *testing.T) {
	var names []election.ModeName
	for _, mode := range election.Modes {
		names = append(names, mode.Name())
		if named, err := election.ModeNamed(mode.Name()); err != nil || named != mode {
			t.Errorf("%s: %v, %v", mode.Name(), named, err)
		}
	}
	want := fmt.Sprintf(`"sometimes" must be one of %q`, names)
	if mode, err := election.ModeNamed("sometimes"); mode != nil || err == nil || err.Error() != want {
		t.Errorf("%v, %v, want %s", mode, err, want)
	}
}

func TestModesListsEveryMode(t *testing.T) {
	listed := map[string]bool{}
	for _, mode := range election.Modes {
		listed[reflect.TypeOf(mode).Name()] = true
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			mode := namedMode(d)
			if mode == "" {
				continue
			}
			found++
			if !listed[mode] {
				t.Errorf("%s declares %s, and Modes does not list it", name, mode)
			}
		}
	}
	if found < len(listed) {
		t.Errorf("found %d modes, and Modes lists %d", found, len(listed))
	}
}

// namedMode returns the type of which d is the method Mode.Name; empty: d is anything else.
func namedMode(d ast.Decl) string {
	method, ok := d.(*ast.FuncDecl)
	if !ok || method.Recv == nil || method.Name.Name != "Name" || method.Type.Results == nil {
		return ""
	}
	result := types.ExprString(method.Type.Results.List[0].Type)
	if result != "ModeName" && result != "lease.ModeName" {
		return ""
	}
	return strings.TrimPrefix(types.ExprString(method.Recv.List[0].Type), "*")
}

// Without a client for LeaseCandidates nobody could nominate the process, and it would wait for ever.
func TestModeCoordinatedNeedsAClientForCandidates(t *testing.T) {
	cfg := newConfig(electiontest.NewStore(leaseName).Client())
	cfg.Mode = election.Coordinated{BinaryVersion: "1.0.0", EmulationVersion: "1.0.0"}
	if _, err := election.New(cfg); err == nil || !strings.Contains(err.Error(), "Config.Candidates is nil") {
		t.Error(err)
	}
}
