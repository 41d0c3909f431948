// Package upgrade rolls installations from the release before to this tree, and back, while users are at work: make
// upgrade. It takes minutes and both cores of a small machine, so that it is no part of make test.
package upgrade

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/regent-project/regent/test/built"
	"github.com/regent-project/regent/test/e2e/harness"
)

var (
	rate       = flag.Int("rate", 500, "how many requests a second users make, whether or not they are answered")
	watches    = flag.Int("watches", 1000, "how many watches are open")
	workspaces = flag.Int("workspaces", 60, "how many workspaces there are, on all shards")
	calm       = flag.Duration("calm", 15*time.Second, "how long users are measured before, between and after the rolls")
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := built.Programs("regent", "leader", "before/regent", "before/leader", "etcd", "etcd-before", "kubectl"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// The programs of both versions.
func older() string { return harness.Binary("before/regent") }
func newer() string { return harness.Binary("regent") }
