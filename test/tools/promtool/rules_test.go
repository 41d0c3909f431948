// Package promtool tests the rules in deploy/prometheus with Prometheus' own tool, which `make alerts` builds first. It
// is a module of its own, and no part of make test: nothing else than the files in deploy/prometheus decides what it
// finds, and Prometheus takes minutes to compile.
package promtool

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestEachAlertFiresForItsFaultOnly(t *testing.T) {
	binary, err := filepath.Abs("../../../bin/promtool")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"check rules --lint=all --lint-fatal rules.yaml", "check config --syntax-only prometheus.yaml", "test rules tests.yaml"} {
		command := exec.CommandContext(t.Context(), binary, strings.Fields(args)...)
		command.Dir = "../../../deploy/prometheus"
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", args, err, out)
		}
	}
}
