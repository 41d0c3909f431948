// Package fill has a release make the data of package releases: make release-data. It starts the release's own program,
// makes an object of everything that this serves, with as many fields as there are, and keeps what was stored.
package fill

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/regent-project/regent/test/built"
)

var release = flag.String("release", "", "the release that makes its data: its program is bin/releases/<release>/regent")

func TestMain(m *testing.M) {
	flag.Parse()
	if *release == "" {
		fmt.Fprintln(os.Stderr, "-release is needed: which release makes its data? make release-data gives it")
		os.Exit(2)
	}
	if err := built.Programs("etcd", "etcdctl"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
