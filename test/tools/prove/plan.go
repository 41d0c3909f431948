package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
)

// always is what each change has to pass, with its minutes on two slow cores (docs/TESTS.md).
var always = []part{{target: "check", minutes: 10}, {target: "test", minutes: 30}}

// A change is what is to be proved.
type change struct {
	files []string
	turn  int
}

// readChange reads the change at the end of the branch: the files that differ from a commit, or else from the last
// commit before it.
func readChange(ctx context.Context, since string) (change, error) {
	history, err := readHistory(ctx, ".")
	if err != nil {
		return change{}, err
	}
	if since == "" {
		since = baseOf(history)
	}
	files, err := changedFiles(ctx, ".", since)
	return change{files, turnOf(history)}, err
}

// changeFlags are those of what looks at a change.
func changeFlags(name string) (flags *flag.FlagSet, since *string, minutes *float64) {
	flags = flag.NewFlagSet(name, flag.ContinueOnError)
	since = flags.String("since", os.Getenv("SINCE"), "the commit before the change; empty: the last one that is four hours older than the newest")
	minutes = flags.Float64("minutes", 55, "how much time there is")
	return flags, since, minutes
}

// tellPlan tells people what a change has to pass.
func tellPlan(ctx context.Context, args []string) error {
	flags, since, minutes := changeFlags("plan")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, err := readChange(ctx, *since)
	if err != nil {
		return err
	}
	fmt.Printf("This change touches %d files, and is the %d. of all. The minutes are those of two slow cores with a warm build cache: usual ones take a third.\n", len(c.files), c.turn)
	for _, p := range always {
		fmt.Printf("%5.0f min  make %s\n", p.minutes, p.target)
		*minutes -= p.minutes
	}
	run, left := choose(parts, c.files, c.turn, *minutes)
	for _, p := range run {
		fmt.Printf("%5.0f min  make %s: %s\n", p.minutes, p.target, p.why)
	}
	for _, p := range left {
		fmt.Printf("           make %s, if the machine is fast enough: %s\n", p.target, p.why)
	}
	fmt.Println("Each can be asked for by hand, and these run when something touches them, or when it is their turn:")
	var others []string
	for _, p := range parts {
		others = append(others, "make "+p.target)
	}
	fmt.Println("  " + strings.Join(others, ", "))
	return nil
}

// tellParts tells a script which long parts to run in the time that is left, a line each: how many minutes it may take
// at most, and its target.
func tellParts(ctx context.Context, args []string) error {
	flags, since, minutes := changeFlags("parts")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, err := readChange(ctx, *since)
	if err != nil {
		return err
	}
	run, left := choose(parts, c.files, c.turn, *minutes)
	for _, p := range run {
		fmt.Printf("%.0f %s\n", 2*p.minutes+5, p.target)
	}
	for _, p := range left {
		fmt.Fprintf(os.Stderr, "there is no time left for make %s (%s): run it by hand\n", p.target, p.why)
	}
	return nil
}
