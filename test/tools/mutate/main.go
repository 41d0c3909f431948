// Command mutate breaks the product on purpose, one small change at a time, and reports which of the broken products
// the tests of the changed package pass. Run it in the root directory of the module:
//
//	go run ./test/tools/mutate -n 40 -seed 1 ./pkg/election ./pkg/server/storage
//
// It tries a sample: -seed says which, and what was left out is told. Mutants in the table of -accepted
// (accepted.md here) are not tried. A row there that is no mutant of its package any more is an error. No file is
// changed: mutants are compiled by go test -overlay.
//
// The exit status is 1 if a mutant survived that is not accepted, 2 if something else is wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// options are the values of the flags.
type options struct {
	n        int
	seed     uint64
	accepted string
	list     bool
	only     string
	runner   runner
	packages []string
}

// errSurvived says that the tests pass a broken product.
var errSurvived = errors.New("mutants survived: write a test that fails with each, or accept it with a reason in the table")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := mutate(ctx, parse(), os.Stdout); {
	case errors.Is(err, errSurvived):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	}
}

func parse() options {
	var o options
	flag.IntVar(&o.n, "n", 40, "how many mutants of each package to try; 0: all")
	flag.Uint64Var(&o.seed, "seed", 1, "which sample to try: the same seed tries the same mutants of the same source")
	flag.StringVar(&o.accepted, "accepted", "test/tools/mutate/accepted.md", "file with the table of mutants that are known to survive; empty: none")
	flag.BoolVar(&o.list, "list", false, "list all mutants, and try none")
	flag.StringVar(&o.only, "only", "", "try the mutants whose row contains this, instead of a sample")
	flag.DurationVar(&o.runner.timeout, "timeout", 5*time.Minute, "how long the tests of a package may take at most. With a mutant they get half a minute more than twice what they take without: one that takes longer is killed")
	command := flag.String("go", "go", "the go command, and what comes before it")
	flag.Parse()
	o.runner.command, o.packages = strings.Fields(*command), flag.Args()
	return o
}

// mutate tries the mutants of all packages.
func mutate(ctx context.Context, o options, out io.Writer) error {
	accepted, err := readAccepted(o.accepted)
	if err != nil {
		return err
	}
	var all [][]mutant
	for _, directory := range o.packages {
		mutants, err := o.runner.mutantsOf(ctx, directory)
		if err != nil {
			return err
		}
		all = append(all, mutants)
	}
	if err := accepted.check(o.packages, all); err != nil {
		return err
	}
	survived := false
	for i, directory := range o.packages {
		if o.list {
			for _, m := range all[i] {
				_, _ = fmt.Fprintf(out, "%s:%d %s\n", m.file, m.line, m.row())
			}
			continue
		}
		t := tally{directory: directory, total: len(all[i])}
		if err := t.try(ctx, o, accepted, all[i], out); err != nil {
			return err
		}
		survived = survived || t.survived > 0
	}
	if survived {
		return errSurvived
	}
	return nil
}

// tally counts the outcomes of a package's mutants.
type tally struct {
	directory                                   string
	total, accepted, killed, survived, unusable int
}

// try tries a sample of the mutants.
func (t *tally) try(ctx context.Context, o options, accepted table, mutants []mutant, out io.Writer) error {
	takes, err := o.runner.unbroken(ctx, t.directory)
	if err != nil {
		return err
	}
	o.runner.timeout = min(o.runner.timeout, 2*takes+30*time.Second)
	for _, m := range shuffled(mutants, o.seed) {
		switch chosen := o.only != "" && strings.Contains(m.row(), o.only); {
		case accepted.has(m):
			t.accepted++
			continue
		case o.only != "" && !chosen, o.only == "" && o.n > 0 && t.killed+t.survived == o.n:
			continue
		}
		outcome, took, err := o.runner.run(ctx, t.directory, m)
		if err != nil {
			return err
		}
		switch outcome {
		case unusable:
			t.unusable++
			continue
		case killed:
			t.killed++
			_, _ = fmt.Fprintf(out, "killed    %s:%d %s (%v)\n", m.file, m.line, m.row(), took.Round(time.Second))
		case survived:
			t.survived++
			_, _ = fmt.Fprintf(out, "SURVIVED  %s:%d %s (%v)\n%s", m.file, m.line, m.row(), took.Round(time.Second), m.diff())
		}
	}
	_, _ = fmt.Fprintf(out, "%s\n", t)
	return nil
}

func (t *tally) String() string {
	tried := t.killed + t.survived
	score := 100.0
	if tried > 0 {
		score = 100 * float64(t.killed) / float64(tried)
	}
	return fmt.Sprintf("%s: %d of %d mutants killed (%.0f%%), %d survived; %d more did not compile, %d are accepted, %d of %d were left out",
		t.directory, t.killed, tried, score, t.survived, t.unusable, t.accepted, t.total-tried-t.unusable-t.accepted, t.total)
}

// shuffled returns the mutants in an order that depends only on the seed.
func shuffled(mutants []mutant, seed uint64) []mutant {
	order := append([]mutant(nil), mutants...)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}
