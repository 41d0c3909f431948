// Command modules does what concerns the repository's modules together: it makes releases, and proves what they promise
// to programs that take them. Give the root of the repository with -tree.
//
//	modules api      write what the libraries of a recorded release export: -version v0.2.0
//	modules compat   test each library with the newest patches of the Kubernetes versions that it supports
//	modules check    make a release in a scratch directory, install the server from it, build with each library
//	modules release  make the commit and the tags of a release, and what is handed out, of the commit that is recorded
//	                 for it, or else of the last one: -version v0.2.0
//	modules rename   give all modules another path, in each file that names it: -path example.org/team/regent
//	modules versions give the modules that are tested the versions of the root
//	modules weight   print what a program's module graph gains with a library: -program name=directory
//
// A library is a module below pkg. They are found by their go.mod.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// options are the values of the flags.
type options struct {
	tree     string
	version  string
	minors   string
	only     string
	quick    bool
	out      string
	path     string
	since    string
	programs programs
}

var commands = map[string]func(context.Context, options) error{"compat": compat, "api": api, "check": check, "release": release, "rename": rename, "versions": versions, "weight": weight}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "modules:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || commands[args[0]] == nil {
		return errors.New("give api, compat, check, release, rename, versions or weight, and their flags")
	}
	var o options
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.StringVar(&o.tree, "tree", "../../..", "root of the repository")
	flags.StringVar(&o.version, "version", "v0.0.1-check", "version of the release: all modules have the same")
	flags.StringVar(&o.minors, "kubernetes", everyMinor, "compat: minor versions of the k8s.io modules")
	flags.StringVar(&o.only, "library", "", "compat, weight: the library's directory; empty: compat tests all, weight takes pkg/election")
	flags.BoolVar(&o.quick, "quick", false, "check: find all that the server is made of, and do not compile it")
	flags.StringVar(&o.out, "out", "../../../bin/dist", "release: directory in which that of the version gets what is handed out")
	flags.StringVar(&o.path, "path", "", "rename: the path of the root module")
	flags.StringVar(&o.since, "since", "", "weight: a commit to compare with; of one in which the library is no module of its own, its module is taken")
	flags.Var(&o.programs, "program", "weight: a program, as name=directory of its go.mod; may be given again")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	return commands[args[0]](ctx, o)
}
