package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	installed = "/usr/local/bin/regent"
	systemd   = root + "/deploy/systemd"
	// exposure is ten times what systemd-analyze gives a unit at the most: 0 is the best, 100 the worst. Most
	// units cannot do without the network.
	exposure = "15"
)

// units returns the command lines of the units, with the flags of the example files of the environment.
func units(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, name := range []string{"regent", "regent-front", "regent-backup", "regent-backup-check", "regent-backup-drill"} {
		var environment []string
		if name != "regent-backup-check" && name != "regent-backup-drill" {
			environment = lines(t, filepath.Join(systemd, name+".env"))
		}
		for _, line := range lines(t, filepath.Join(systemd, name+".service")) {
			command, ok := strings.CutPrefix(line, "ExecStart="+installed+" ")
			if !ok {
				continue
			}
			for _, assignment := range environment {
				if variable, flags, ok := strings.Cut(assignment, "="); ok && !strings.HasPrefix(assignment, "#") {
					command = strings.ReplaceAll(command, "$"+variable, strings.Trim(flags, `"`))
				}
			}
			out[name] = strings.Fields(command)
		}
		if len(out[name]) < 4 || strings.Contains(strings.Join(out[name], " "), "$") {
			t.Fatalf("%s runs %q", name, out[name])
		}
	}
	return out
}

func lines(t *testing.T, file string) []string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(content), "\n")
}

// setting returns the value of a unit's setting.
func setting(t *testing.T, name, key string) string {
	t.Helper()
	for _, line := range lines(t, filepath.Join(systemd, name+".service")) {
		if value, ok := strings.CutPrefix(line, key+"="); ok {
			return value
		}
	}
	t.Fatalf("%s has no %s", name, key)
	return ""
}

// analyze runs systemd-analyze, by its own word on units, which needs no systemd that runs.
func analyze(t *testing.T, args ...string) {
	t.Helper()
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") != "" { // .ci/run has installed it
			t.Fatal("systemd-analyze is missing")
		}
		t.Skip("systemd-analyze is missing: install systemd to have the units checked")
	}
	if out, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput(); err != nil {
		t.Errorf("systemd-analyze %q: %v\n%s", args, err, out)
	}
}

func TestSystemdKnowsAllSettingsOfTheUnits(t *testing.T) {
	for name := range units(t) {
		content, err := os.ReadFile(filepath.Join(systemd, name+".service"))
		if err != nil {
			t.Fatal(err)
		}
		// The program must be there for systemd-analyze.
		file := filepath.Join(t.TempDir(), name+".service")
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(content), installed, static(t))), 0o600); err != nil {
			t.Fatal(err)
		}
		analyze(t, "verify", "--man=no", "--recursive-errors=no", file)
		analyze(t, "security", "--offline=true", "--threshold="+exposure, file)
	}
}

func TestAUnitHasTimeToStop(t *testing.T) {
	for name, command := range units(t) {
		if command[0] == "backup" { // it stops at once
			continue
		}
		delay := int64(0)
		for _, arg := range command {
			if value, ok := strings.CutPrefix(arg, "--shutdown-delay-duration="); ok {
				delay = seconds(t, value)
			}
		}
		if stop := seconds(t, setting(t, name, "TimeoutStopSec")); delay == 0 || stop < longestStop+delay {
			t.Errorf("%s: %d s to stop, with a delay of %d s", name, stop, delay)
		}
		if got := setting(t, name, "RestartPreventExitStatus"); got != "2" {
			t.Errorf("%s is not restarted after %s, and a flag that is wrong ends with 2", name, got)
		}
	}
}
