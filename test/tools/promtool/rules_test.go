// Package promtool tests the rules in deploy/prometheus with Prometheus' own tool, which `make alerts` builds first. It
// is a module of its own, and no part of make test: nothing else than the files in deploy/prometheus decides what it
// finds, and Prometheus takes minutes to compile.
package promtool

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestEachAlertFiresForItsFaultOnly(t *testing.T) {
	binary, err := filepath.Abs("../../../bin/promtool")
	if err != nil {
		t.Fatal(err)
	}
	// Without what is for readers alone and has no labels, so that the tests need not repeat it.
	forReaders, shorter := regexp.MustCompile(`(?m)^      (?:meaning|impact|diagnosis|mitigation): .*\n`), t.TempDir()
	for _, name := range []string{"rules.yaml", "tests.yaml"} {
		content, err := os.ReadFile(filepath.Join("../../../deploy/prometheus", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(shorter, name), forReaders.ReplaceAll(content, nil), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for args, directory := range map[string]string{
		"check rules --lint=all --lint-fatal rules.yaml": "../../../deploy/prometheus", "check config --syntax-only prometheus.yaml": "../../../deploy/prometheus",
		"test rules tests.yaml": shorter,
	} {
		command := exec.CommandContext(t.Context(), binary, strings.Fields(args)...)
		command.Dir = directory
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", args, err, out)
		}
	}
}
