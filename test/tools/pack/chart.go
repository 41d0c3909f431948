package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// chartDirectory has the chart for Helm.
const chartDirectory = "deploy/helm/regent"

// appVersion is the line of Chart.yaml that says what the chart installs. In the repository it is of no release.
var appVersion = regexp.MustCompile(`(?m)^appVersion: .*$`)

// writeChart writes the chart as helm package would, with the version of the release as its appVersion. Its own version
// is that of the repository.
func writeChart(w io.Writer, r release) error {
	var entries []entry
	tree := os.DirFS(filepath.Join(r.tree, filepath.FromSlash(chartDirectory)))
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		if name == "Chart.yaml" {
			if !appVersion.Match(content) {
				return fmt.Errorf("%s/%s has no line appVersion", chartDirectory, name)
			}
			content = appVersion.ReplaceAll(content, fmt.Appendf(nil, "appVersion: %q", strings.TrimPrefix(r.version, "v")))
		}
		entries = append(entries, entry{name: path.Join(path.Base(chartDirectory), name), mode: 0o644, content: content})
		return nil
	})
	if err != nil {
		return err
	}
	return compressed(w, func(w io.Writer) error { return writeTar(w, r.date, entries) })
}
