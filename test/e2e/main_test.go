// Package e2e holds scenarios with real processes, a real etcd and real faults. Each is named for what it promises.
package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/regent-project/regent/test/e2e/harness"
)

func TestMain(m *testing.M) {
	if err := harness.Build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
