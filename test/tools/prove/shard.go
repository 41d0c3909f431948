package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// shards says in how many processes the tests of a package run, beside each other: packages whose tests wait, and
// cannot be parallel in one process, where they share metrics, what is counted, and what must be gone in the end.
var shards = map[string]int{"pkg/server": 2}

// tables are tests of packages whose other tests need the race detector: the same few calls for each of many cases, one
// after the other. Whatever runs beside each other for them does so in other tests, too.
var tables = map[string][]string{
	"pkg/server": {
		"FuzzNobodyIsAnsweredOutsideOfTheirCluster",
		"TestAPutCreatesOnlyWhereTheSamplesSayIt",
		"TestBadDefinitionsGetAClearErrorAndHurtNobodyElse",
		"TestEachServedResourceIsInABuiltInRoleOrHasAReason",
		"TestEqualNamesOfAnyResourceNeverMeet",
		"TestEveryWriteOfACustomObjectIsHeldToItsToken",
		"TestEveryWriteOfEveryResourceIsHeldToItsToken",
		"TestNobodyGetsARightThatNobodyHad",
		"TestNobodyGetsMoreThanTheyHaveByRolesAndBindings",
		"TestQuestionsWriteNothing",
		"TestRulesAndDashboardsUseMetricsThatExist",
		"TestSelectorsAndWatchesAreNoLargerThanTheyMay",
		"TestUsersAskWhatTheyMayDo",
	},
}

// A binary is what is compiled of a package.
type binary struct {
	path string
	race bool
}

func (u unit) compiled() binary { return binary{u.path, u.race} }

// split divides units into those that run: by what is compiled for them, one, or several that each run some of its
// tests, which take about as long as those of the others. Tables of a package that has the race detector run without
// it.
func (s settings) split(units []unit) (map[binary][]unit, error) {
	all := map[binary][]unit{}
	for _, u := range units {
		n, some := max(1, shards[u.name]), tables[u.name]
		if s.filter != "" || n == 1 && len(some) == 0 {
			all[u.compiled()] = append(all[u.compiled()], u)
			continue
		}
		names, err := testNames(u.dir)
		if err != nil {
			return nil, err
		}
		if u.race && len(some) > 0 {
			for _, name := range some {
				if !slices.Contains(names, name) {
					return nil, fmt.Errorf("%s has no %s any more: take it off the tables in test/tools/prove/shard.go, or rename it there", u.name, name)
				}
			}
			names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(some, name) })
			plain := u
			plain.race, plain.shard, plain.tests = false, "tables", some
			all[plain.compiled()] = append(all[plain.compiled()], plain)
		}
		for i, some := range divide(names, n, func(test string) float64 { return s.costs.ofTest(u, test).Wall.Seconds() }) {
			part := u
			part.shard, part.tests = fmt.Sprintf("%d/%d", i+1, n), some
			all[part.compiled()] = append(all[part.compiled()], part)
		}
	}
	return all, nil
}

// divide divides tests into n lists of about the same weight: the heaviest first, each to the lightest list.
func divide(names []string, n int, weight func(string) float64) [][]string {
	names = slices.SortedFunc(slices.Values(names), func(a, b string) int {
		return cmp.Or(cmp.Compare(weight(b), weight(a)), strings.Compare(a, b))
	})
	lists, weights := make([][]string, n), make([]float64, n)
	for _, name := range names {
		lightest := 0
		for i := range weights {
			if weights[i] < weights[lightest] {
				lightest = i
			}
		}
		lists[lightest] = append(lists[lightest], name)
		weights[lightest] += weight(name)
	}
	return lists
}

// testNames returns the names of all that go test runs of a directory: tests, seeds of fuzzing, and examples.
func testNames(directory string) (names []string, err error) {
	files, err := filepath.Glob(filepath.Join(directory, "*_test.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("cannot read the tests of %s: %w", directory, err)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || f.Name.Name == "TestMain" {
				continue
			}
			for _, kind := range []string{"Test", "Fuzz", "Example"} {
				if strings.HasPrefix(f.Name.Name, kind) {
					names = append(names, f.Name.Name)
				}
			}
		}
	}
	return names, nil
}
