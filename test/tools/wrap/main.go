// Command wrap wraps the comments of Go files, and the text of pages of Markdown, at 120 columns: `make fmt` runs it.
// It changes only paragraphs, and items of lists, that have a wider line. What is indented in a comment, such as a
// table, is left as it is, and so are directives. Of a page all is left that is no paragraph: tables, code, headings,
// HTML.
//
//	go run ./test/tools/wrap [-l] <file or directory>...
//
// With -l it writes the names of the files that it would change, and changes none.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	list := flag.Bool("l", false, "only list the files that would change")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: wrap [-l] <file or directory>...")
		os.Exit(2)
	}
	for _, root := range flag.Args() {
		if err := wrapAll(root, *list); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// wrapAll wraps a file, or all Go files and pages below a directory. What is generated is left as it is.
func wrapAll(root string, list bool) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || strings.HasPrefix(d.Name(), "zz_generated"):
			return nil
		}
		before, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("cannot wrap: %w", err)
		}
		after := before
		switch filepath.Ext(path) {
		case ".go":
			if wrapped := []byte(wrapComments(string(before))); !bytes.Equal(before, wrapped) {
				after, err = format.Source(wrapped)
			}
		case ".md":
			if !bytes.HasPrefix(before, []byte("<!-- Generated ")) {
				after = []byte(wrapMarkdown(string(before)))
			}
		}
		if err != nil {
			return fmt.Errorf("cannot wrap %s: %w", path, err)
		}
		if bytes.Equal(before, after) {
			return nil
		}
		if list {
			fmt.Println(path)
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return fmt.Errorf("cannot wrap: %w", err)
		}
		if err := os.WriteFile(path, after, info.Mode().Perm()); err != nil {
			return fmt.Errorf("cannot wrap: %w", err)
		}
		return nil
	})
}
