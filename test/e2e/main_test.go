// Package e2e holds scenarios with real processes, a real etcd and real faults. Each is named for what it promises.
// Those that do not need a certain mode of election pass in each (-mode), and those that do not need a certain etcd
// pass on one of several members, too (-etcd=3).
package e2e

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/regent-project/regent/test/e2e/harness"
)

var all = flag.Bool("all", false, "have each fault happen in each mode of election, under each policy, and to each kind of member: without, each happens once at least, and all of them where what follows differs (make long-faults)")

// calmWriter is the pause of writers that run all the time while something else happens: their scenarios are about who
// leads. Those about what is written have writers that hurry.
const calmWriter = 80 * time.Millisecond

func TestMain(m *testing.M) {
	flag.StringVar(&harness.DefaultMode, "mode", harness.Lease, "the mode of election in scenarios that do not need a certain one: lease, coordinated, for-life or by-presence")
	flag.IntVar(&harness.DefaultMembers, "etcd", 1, "of how many members the etcd is, in scenarios that do not need a certain number")
	flag.Parse()
	if !slices.Contains(modes, harness.DefaultMode) {
		fmt.Fprintf(os.Stderr, "-mode=%s must be one of %q\n", harness.DefaultMode, modes)
		os.Exit(2)
	}
	if harness.DefaultMembers < 1 {
		fmt.Fprintf(os.Stderr, "-etcd=%d must be at least 1\n", harness.DefaultMembers)
		os.Exit(2)
	}
	if err := harness.Build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
