package command

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// helpOf returns what a command says of itself.
func helpOf(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(args, &stdout, &stderr); code != exitOK || stderr.Len() > 0 {
		t.Fatalf("%q: exit code %d: %s", args, code, stderr.String())
	}
	return stdout.String()
}

// The help of each command fits a screen, and says what it does, how it is called, and what its flags do.
func TestHelpFitsAScreen(t *testing.T) {
	for _, cmd := range append(commands(newCommand()), newCommand()) {
		args := append(strings.Fields(cmd.CommandPath())[1:], "--help")
		text := helpOf(t, args...)
		if n := strings.Count(text, "\n"); n > 40 {
			t.Errorf("%q has %d lines, a screen has 40:\n%s", args, n, text)
		}
		for line := range strings.Lines(text) {
			if len(strings.TrimRight(line, "\n")) > helpWidth && !strings.HasPrefix(line, "  regent ") && !strings.HasPrefix(line, "  (umask") {
				t.Errorf("%q: %d columns: %s", args, len(line), line)
			}
			if strings.TrimRight(line, " \n") != strings.TrimRight(line, "\n") {
				t.Errorf("%q: blanks at the end of %q", args, line)
			}
		}
		if !strings.Contains(text, "\nUsage:\n  "+cmd.CommandPath()) {
			t.Errorf("%q does not say how it is called:\n%s", args, text)
		}
	}
}

// What is too long for a screen is there, if it is asked for.
func TestAllFlagsAreInHelpAll(t *testing.T) {
	for _, name := range []string{"start", "front"} {
		cmd, _, err := newCommand().Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		brief, all := helpOf(t, name, "--help"), helpOf(t, name, "--"+allFlags)
		if !strings.Contains(brief, "regent "+name+" --"+allFlags) {
			t.Errorf("the help of %s does not say where the rest is:\n%s", name, brief)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && f.Deprecated == "" && f.Name != "help" && f.Name != allFlags && !strings.Contains(all, " --"+f.Name) {
				t.Errorf("%s --%s does not have --%s", name, allFlags, f.Name)
			}
		})
	}
}

func TestTheVersionIsAFlagToo(t *testing.T) {
	if flag, command := helpOf(t, "--version"), helpOf(t, "version"); flag != command || !strings.HasPrefix(flag, "regent v") {
		t.Errorf("--version says %q, version %q", flag, command)
	}
}

func TestAMisspelledCommandIsFound(t *testing.T) {
	for typed, want := range map[string]string{
		"statsu": "did you mean status? See regent --help", "frobnicate": `unknown command "frobnicate": see regent --help`, "shard lsit": "did you mean list or set? See regent shard --help",
	} {
		var stdout, stderr bytes.Buffer
		if code := run(strings.Fields(typed), &stdout, &stderr); code != exitUsage || !strings.Contains(stderr.String(), want) {
			t.Errorf("%s: exit code %d: %s", typed, code, stderr.String())
		}
	}
}
