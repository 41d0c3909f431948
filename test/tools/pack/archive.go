package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

// besides is what an archive has beside the program. A directory is taken with all below it.
var besides = []string{"CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "GOVERNANCE.md", "LICENSE", "README.md", "deploy", "docs"}

// writeArchive writes a .tar.gz with one directory, in which the program is.
func writeArchive(w io.Writer, r release) error {
	b, err := r.one()
	if err != nil {
		return err
	}
	top := fmt.Sprintf("regent_%s_linux_%s", r.version, b.arch)
	programs, err := b.programs(top + "/")
	if err != nil {
		return err
	}
	entries := append([]entry{{name: top + "/", mode: 0o755}}, programs...)
	// as a plugin of kubectl it is known by this name
	entries = append(entries, entry{name: top + "/kubectl-regent", mode: 0o777, target: "regent"})
	tree := os.DirFS(r.tree)
	for _, name := range besides {
		err := fs.WalkDir(tree, name, func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			e := entry{name: path.Join(top, name), mode: 0o644}
			if d.IsDir() {
				e.name, e.mode = e.name+"/", 0o755
			} else if e.content, err = fs.ReadFile(tree, name); err != nil {
				return err
			}
			entries = append(entries, e)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return compressed(w, func(w io.Writer) error { return writeTar(w, r.date, entries) })
}
