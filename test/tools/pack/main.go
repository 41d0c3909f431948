// Command pack makes what is handed to those who run Regent, of binaries that are built already: an OCI image,
// archives, and bills of materials. `make image` and `make dist` call it.
//
//	pack image   -out image.tar      amd64=regent-amd64 arm64=regent-arm64
//	pack archive -out regent.tar.gz  -tree ../../.. amd64=regent-amd64
//	pack sbom    -out regent.json    amd64=regent-amd64
//	pack chart   -out regent.tgz     -tree ../../..
//	pack krew    -out regent.yaml    -tree ../../.. -url https://example.org/v1 amd64=regent-amd64.tar.gz
//
// etcd's tools are in the same directory as each binary, in one program: etcdctl (test/tools/etcdctl).
//
// The same input gives the same bytes: every time in the output is -date, every owner is a number, and everything is
// sorted.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// release is what the output says of itself.
type release struct {
	version, revision string
	date              time.Time
	tree              string
	url               string // where people download the archives; empty: where the module's home has them
	binaries          []binary
}

// binary is one for linux and an architecture, as Go calls it.
type binary struct{ arch, file string }

// etcdctl is the name of etcd's tools. By the name etcdutl they are the other one of them.
const etcdctl, etcdutl = "etcdctl", "etcdutl"

// tools returns the file with etcd's tools for the same architecture.
func (b binary) tools() string { return filepath.Join(filepath.Dir(b.file), etcdctl) }

// programs returns what is run, as files of an archive below a directory.
func (b binary) programs(below string) ([]entry, error) {
	program, err := os.ReadFile(b.file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the binary: %w", err)
	}
	tools, err := os.ReadFile(b.tools())
	if err != nil {
		return nil, fmt.Errorf("cannot read etcd's tools, build them beside the binary with make static: %w", err)
	}
	return []entry{
		{name: below + "regent", mode: 0o755, content: program},
		{name: below + etcdctl, mode: 0o755, content: tools},
		{name: below + etcdutl, mode: 0o777, target: etcdctl},
	}, nil
}

// outputs are the commands.
var outputs = map[string]func(io.Writer, release) error{"image": writeImage, "archive": writeArchive, "sbom": writeSBOM, "chart": writeChart, "krew": writeKrew}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 || outputs[args[0]] == nil {
		return errors.New("give image, archive, sbom, chart or krew, and their flags")
	}
	r, out, err := parse(args[0], args[1:])
	if err != nil {
		return err
	}
	file, err := os.Create(out)
	if err != nil {
		return fmt.Errorf("cannot write the output: %w", err)
	}
	if err := errors.Join(outputs[args[0]](file, r), file.Close()); err != nil {
		return errors.Join(fmt.Errorf("cannot make %s: %w", out, err), os.Remove(out))
	}
	return nil
}

func parse(command string, args []string) (r release, out string, err error) {
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.StringVar(&out, "out", "", "the file to write")
	flags.StringVar(&r.version, "version", "unknown", "the version")
	flags.StringVar(&r.revision, "revision", "unknown", "the commit")
	flags.StringVar(&r.tree, "tree", ".", "the root of the source, with docs/ and deploy/")
	flags.StringVar(&r.url, "url", "", "krew: where people download the archives")
	date := flags.String("date", "1970-01-01T00:00:00Z", "when the commit was made")
	if err := flags.Parse(args); err != nil {
		return release{}, "", err
	}
	if r.date, err = time.Parse(time.RFC3339, *date); err != nil {
		return release{}, "", fmt.Errorf("-date must be as 2026-01-31T00:00:00Z: %w", err)
	}
	for _, arg := range flags.Args() {
		arch, file, ok := strings.Cut(arg, "=")
		if !ok {
			return release{}, "", fmt.Errorf("%q: give binaries as amd64=<file>", arg)
		}
		r.binaries = append(r.binaries, binary{arch, file})
	}
	if out == "" || len(r.binaries) == 0 && command != "chart" {
		return release{}, "", errors.New("give -out and at least one binary; krew: archive")
	}
	slices.SortFunc(r.binaries, func(a, b binary) int { return strings.Compare(a.arch, b.arch) })
	return r, out, nil
}

// one returns the only binary of what is made for one architecture.
func (r release) one() (binary, error) {
	if len(r.binaries) != 1 {
		return binary{}, fmt.Errorf("give one binary, got %d", len(r.binaries))
	}
	return r.binaries[0], nil
}
