package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tableFile has what packages and tests took when they were measured, relative to the root. `make measure` writes it;
// the order in which tests run, what runs beside what, and the plan of a change are taken from it.
const tableFile = "docs/reference/tests.md"

// Sections of the file are between two marks each.
const (
	packagesRace  = "packages"
	packagesPlain = "packages without the race detector"
	testsSection  = "tests"
)

func marks(section string) (begin, end string) {
	return "<!-- " + section + ": written by make measure -->\n", "<!-- end -->\n"
}

// longTest is from how long on a test has a line of its own.
const longTest = time.Second

// readCosts reads the costs of packages and tests. Without a file nothing is known.
func readCosts(file string) (costs, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return costs{}, nil
	}
	if err != nil {
		return nil, err
	}
	known := costs{}
	for name, cells := range map[string]int{packagesRace: 1, testsSection: 2} {
		for _, row := range rows(section(string(content), name)) {
			wall, err := strconv.ParseFloat(row[len(row)-3], 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %q is no number of seconds: %w", file, row[len(row)-3], err)
			}
			cpu, err := strconv.ParseFloat(row[len(row)-2], 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %q is no number of seconds: %w", file, row[len(row)-2], err)
			}
			known[strings.Join(row[:cells], " ")] = cost{time.Duration(wall * float64(time.Second)), time.Duration(cpu * float64(time.Second))}
		}
	}
	return known, nil
}

// section returns what is between the marks of a section.
func section(content, name string) string {
	begin, end := marks(name)
	_, content, _ = strings.Cut(content, begin)
	content, _, _ = strings.Cut(content, end)
	return content
}

// rows returns the cells of a table's rows, without its head.
func rows(table string) (all [][]string) {
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(strings.TrimSpace(line), "|"), "|") {
			cells = append(cells, strings.Trim(strings.TrimSpace(cell), "`"))
		}
		all = append(all, cells)
	}
	return all[min(1, len(all)):]
}

// writeTable writes what a run has measured into the file.
func (r *report) writeTable(file string, race bool) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("%s has the tables' places: %w", file, err)
	}
	sections := map[string]string{packagesPlain: r.packagesTable()}
	if race {
		sections = map[string]string{packagesRace: r.packagesTable(), testsSection: r.testsTable()}
	}
	text := string(content)
	for name, table := range sections {
		begin, end := marks(name)
		before, rest, found := strings.Cut(text, begin)
		_, after, ended := strings.Cut(rest, end)
		if !found || !ended {
			return fmt.Errorf("%s has no place for the section %q: put the lines %q and %q there", file, name, begin, end)
		}
		text = before + begin + table + end + after
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

// packagesTable has a row for each package. Of one whose tests ran in several processes it has their sum.
func (r *report) packagesTable() string {
	type row struct {
		name  string
		race  bool
		tests int
		usage usage
	}
	byName := map[string]*row{}
	for _, p := range r.packages {
		of := byName[p.unit.name]
		if of == nil {
			of = &row{name: p.unit.name, race: p.unit.race}
			byName[p.unit.name] = of
		}
		of.tests += p.passed + p.failed
		of.usage.wall, of.usage.cpu, of.usage.memory = of.usage.wall+p.usage.wall, of.usage.cpu+p.usage.cpu, max(of.usage.memory, p.usage.memory)
	}
	var all []*row
	for _, of := range byName {
		all = append(all, of)
	}
	slices.SortFunc(all, func(a, b *row) int {
		return cmp.Or(cmp.Compare(b.usage.cpu, a.usage.cpu), strings.Compare(a.name, b.name))
	})
	var b strings.Builder
	b.WriteString("| package | race detector | tests | largest process, MiB | s | s of CPU | of a core |\n|---|---|---|---|---|---|---|\n")
	for _, of := range all {
		race := ""
		if of.race {
			race = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %d | %d | %.1f | %.1f | %.2f |\n", of.name, race, of.tests, of.usage.memory>>20, of.usage.wall.Seconds(), of.usage.cpu.Seconds(),
			of.usage.cpu.Seconds()/max(of.usage.wall.Seconds(), 0.1))
	}
	return b.String()
}

// testsTable has a row for each test that is long. What it waits is what it takes longer than it computes.
func (r *report) testsTable() string {
	tests := slices.Clone(r.tests)
	slices.SortFunc(tests, func(a, b testResult) int {
		return cmp.Or(cmp.Compare(b.wall, a.wall), strings.Compare(a.name, b.name))
	})
	var b strings.Builder
	b.WriteString("| package | test | s | s of CPU | s of waiting |\n|---|---|---|---|---|\n")
	for _, t := range tests {
		if t.wall >= longTest {
			fmt.Fprintf(&b, "| `%s` | `%s` | %.1f | %.1f | %.1f |\n", t.unit.name, t.name, t.wall.Seconds(), t.cpu.Seconds(), max(0, (t.wall-t.cpu).Seconds()))
		}
	}
	return b.String()
}
