// Command prove proves a change: it runs the tests of all modules side by side, and says which of the long parts a
// change needs. Run it by make, which builds what the tests start:
//
//	make test                                             all tests
//	make test ONLY=pkg/election/... RUN=TestName          some
//	make measure                                          all tests, and docs/reference/tests.md anew
//	go run ./test/tools/prove plan                        what .ci/run does for this change, and for how long
//	go run ./test/tools/prove parts -minutes 30           the long parts of this change that so much time is left for
//
// The exit status is 1 if something failed, 2 if it cannot be told.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// goCommand is the go command.
const goCommand = "go"

// errFailed says that tests failed, which was told already.
var errFailed = errors.New("tests failed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := prove(ctx, os.Args[1:]); {
	case errors.Is(err, errFailed):
		os.Exit(1)
	case err != nil && !errors.Is(err, flag.ErrHelp):
		fmt.Fprintln(os.Stderr, "prove:", err)
		os.Exit(2)
	}
}

func prove(ctx context.Context, args []string) error {
	commands := map[string]func(context.Context, []string) error{"test": test, "plan": tellPlan, "parts": tellParts}
	if len(args) == 0 || commands[args[0]] == nil {
		return errors.New("say what to do: test, plan or parts")
	}
	root, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(root, "cmd", "server")); err != nil {
		return fmt.Errorf("run it in the root of the source: %w", err)
	}
	return commands[args[0]](ctx, args[1:])
}

// test runs tests.
func test(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	var s settings
	flags.StringVar(&s.filter, "run", "", "run the tests that this matches, as go test's -run")
	flags.IntVar(&s.count, "count", 1, "run each test so many times")
	flags.IntVar(&s.cases, "cases", 0, "of how many random cases each property is tested; 0: a hundred, or fewer where they are dear")
	random := flags.Bool("properties", false, "run only packages that have properties")
	race := flags.Bool("race", true, "run what starts goroutines with the race detector")
	table := flags.Bool("table", false, "write what packages and tests take into "+tableFile)
	further := flags.String("args", "", "further arguments of the test binaries")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s.args = strings.Fields(*further)
	var err error
	if s.root, err = filepath.Abs("."); err != nil {
		return err
	}
	if s.costs, err = readCosts(filepath.Join(s.root, tableFile)); err != nil {
		return err
	}
	units, err := readSuite(ctx, s.root, *race)
	if err != nil {
		return err
	}
	if units, err = choosePackages(units, flags.Args()); err != nil {
		return err
	}
	if *random {
		units = slices.DeleteFunc(units, func(u unit) bool { return !u.random })
	}
	var done func()
	if s.binaries, done, err = openBinaries(); err != nil {
		return err
	}
	defer done()
	r := runner{settings: s, report: newReport(os.Stdout, time.Now)}
	if err := r.run(ctx, units); err != nil {
		r.report.sum(r.left)
		return err
	}
	passed := r.report.sum(r.left)
	if *table {
		err = r.report.writeTable(filepath.Join(s.root, tableFile), *race)
	}
	if !passed {
		err = errors.Join(err, errFailed)
	}
	return err
}
