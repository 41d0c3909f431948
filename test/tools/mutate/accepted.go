package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
)

// table has the reasons for mutants that are known to survive, by row.
type table map[string]string

// readAccepted reads the rows of Markdown tables in a file that begin like a mutant's row. Each must end with a reason.
func readAccepted(file string) (table, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the mutants that are known to survive: %w", err)
	}
	accepted, errs := table{}, []error(nil)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") || !strings.Contains(line, "` is `") {
			continue
		}
		cut := strings.LastIndex(strings.TrimSuffix(line, "|"), " | ")
		row, reason := line[:cut+2], strings.TrimSpace(strings.Trim(line[cut+2:], "| "))
		switch {
		case strings.Count(strings.ReplaceAll(row, `\|`, ""), "|") != 3 || reason == "":
			errs = append(errs, fmt.Errorf("%s: give a reason in a third cell: %s", file, line))
		case accepted[row] != "":
			errs = append(errs, fmt.Errorf("%s: twice: %s", file, row))
		}
		accepted[row] = reason
	}
	return accepted, errors.Join(errs...)
}

func (t table) has(m mutant) bool { return t[m.row()] != "" }

// check returns an error for each row about one of the packages that is not the row of one of its mutants.
func (t table) check(directories []string, mutants [][]mutant) error {
	exists, about := map[string]bool{}, map[string]bool{}
	for i, directory := range directories {
		about[path.Clean(directory)] = true
		for _, m := range mutants[i] {
			exists[m.row()] = true
		}
	}
	var errs []error
	for row := range t {
		file, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " ")
		if about[path.Dir(file)] && !exists[row] {
			errs = append(errs, fmt.Errorf("an accepted mutant does not exist (any more): take its row out, or correct it (-list shows all): %s", row))
		}
	}
	return errors.Join(errs...)
}
