package browser

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

var (
	regent      = flag.String("regent", filepath.Join("..", "..", "bin", "regent"), "the binary that is tested")
	screenshots = flag.String("screenshots", os.Getenv("REGENT_SCREENSHOTS"), "directory for screenshots; empty: ../../bin/screenshots")
)

// TestMain starts one shard for all tests: each leaves it as it was.
func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if chromium() == "" {
		fmt.Fprintln(os.Stderr, "SKIPPED: the page is not tested, because there is no browser: install chromium-headless-shell, chromium or google-chrome")
		return 0
	}
	if *screenshots == "" {
		*screenshots = filepath.Join("..", "..", "bin", "screenshots")
	}
	if err := os.MkdirAll(*screenshots, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	directory, err := os.MkdirTemp("", "regent-browser")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(directory) }()
	if served, err = startShard(directory); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := served.stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	if code != 0 {
		fmt.Fprintf(os.Stderr, "---- regent dev said:\n%s\n---- regent ui said:\n%s\n", served.dev.output(), served.ui.output())
	}
	return code
}

// served is the shard that the tests look at.
var served *shard
