package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// A program may have the oldest versions that a library's go.mod allows, and everything else here is compiled with
// those of the root. This test finds what only the newer ones have. It checks types, from source: compiling all that a
// library imports takes minutes, which make compat and make release-check do.
func TestLibrariesCompileWithTheOldestVersionsThatTheyAllow(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	all, err := readTree(root)
	if err != nil {
		t.Fatal(err)
	}
	looked := 0
	for _, m := range all.libraries() {
		t.Run(m.short, func(t *testing.T) {
			ours, err := packages.Load(&packages.Config{
				Context: t.Context(),
				Mode:    packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo,
				Dir:     m.directory,
				Env:     append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly", "CGO_ENABLED=0"),
				Tests:   true,
				ParseFile: func(set *token.FileSet, name string, text []byte) (*ast.File, error) {
					file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
					if err == nil && !strings.HasPrefix(name, m.directory) {
						dropBodies(file)
					}
					return file, err
				},
			}, "./...")
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range ours {
				if strings.HasSuffix(p.PkgPath, ".test") {
					continue // the go command's own main function
				}
				for _, e := range p.Errors {
					t.Errorf("%v: do without it, or raise what %s/go.mod requires", e, m.short)
				}
			}
			looked += len(ours)
		})
	}
	if looked < 10 {
		t.Errorf("only %d packages were looked at", looked)
	}
}

// dropBodies leaves of a file what those who import its package can see.
func dropBodies(file *ast.File) {
	for _, d := range file.Decls {
		if f, is := d.(*ast.FuncDecl); is {
			f.Body = nil
		}
	}
}
