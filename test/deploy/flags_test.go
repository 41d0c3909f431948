package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

// longestStop is for how many seconds a process may take to stop, with the default timings and no delay:
// docs/OPERATIONS.md.
const longestStop = 40

func seconds(t *testing.T, s string) int64 {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return int64(d.Seconds())
}

// flagsOf returns the flags that a command has.
func flagsOf(t *testing.T, command string) map[string]bool {
	t.Helper()
	out := ""
	for _, help := range []string{"--help", "--help-all"} { // all are in the first, unless that names the second
		if out != "" && !strings.Contains(out, help) {
			break
		}
		args := append(strings.Fields(command), help)
		said, err := exec.CommandContext(t.Context(), static(t), args...).Output()
		if err != nil {
			t.Fatalf("regent %s %s: %v", command, help, err)
		}
		out = string(said)
	}
	flags := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^ +(?:(-[a-z]), )?(--[a-z][a-z0-9-]*)\b`).FindAllStringSubmatch(out, -1) {
		flags[match[1]], flags[match[2]] = true, true
	}
	if len(flags) < 3 {
		t.Fatalf("regent %s --help shows %d flags", command, len(flags))
	}
	return flags
}

// checkCommand reports the flags of a command line that the command does not have.
func checkCommand(t *testing.T, where string, line []string) {
	t.Helper()
	first := 0
	for first < len(line) && !strings.HasPrefix(line[first], "-") {
		first++
	}
	flags := flagsOf(t, strings.Join(line[:first], " "))
	for _, arg := range line[first:] {
		if name, _, _ := strings.Cut(arg, "="); !flags[name] {
			t.Errorf("%s: regent %s has no flag %s", where, strings.Join(line[:first], " "), name)
		}
	}
}

// A flag that is renamed breaks this test, and not an operator's upgrade.
func TestEveryFlagThatIsInstalledExists(t *testing.T) {
	for _, file := range valuesFiles(t) {
		for _, set := range of[*appsv1.StatefulSet](objects(t, readValues(t, file))) {
			pod := set.Spec.Template.Spec
			for _, c := range append(pod.InitContainers, pod.Containers...) {
				checkCommand(t, file+" "+set.Name+" "+c.Name, c.Args)
			}
		}
	}
	for unit, program := range units(t) {
		checkCommand(t, unit, program)
	}
}

// The commands in docs/INSTALL.md have the flags that they are shown with.
func TestEveryFlagInTheInstructionsExists(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "docs/INSTALL.md"))
	if err != nil {
		t.Fatal(err)
	}
	var typed string
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```").FindAllStringSubmatch(string(content), -1) {
		typed += block[1]
	}
	commands := regexp.MustCompile(`(?m)^(?:.* )?regent ((?:start|front|pki|shard) [^|>#;\n]*)`).FindAllStringSubmatch(typed, -1)
	if len(commands) < 3 {
		t.Fatalf("%d commands", len(commands))
	}
	for _, match := range commands {
		words := strings.Fields(match[1])
		line := []string{}
		for _, word := range words {
			if strings.HasPrefix(word, "-") || len(line) == 0 || (len(line) < 2 && words[0] != "start") {
				line = append(line, word)
			}
		}
		checkCommand(t, "docs/INSTALL.md", line)
	}
}
