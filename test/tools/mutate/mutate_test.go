package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// changes are the mutants of a function's body, each as "what: by what".
func changes(t *testing.T, body string) []string {
	t.Helper()
	mutants, err := find("p/p.go", []byte("package p\n\nfunc (t *thing[K]) f(a, b int, ok bool) (int, error) {\n"+body+"\n}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range mutants {
		if m.function != "thing.f" {
			t.Errorf("%s is in %q", m.row(), m.function)
		}
		if m.dropped {
			m.new = ""
		}
		all = append(all, m.old+": "+m.new)
	}
	return all
}

func TestWhatIsChanged(t *testing.T) {
	for name, test := range map[string]struct {
		body string
		want []string
	}{
		"a condition":             {"if ok { }", []string{"ok: !ok"}},
		"one that is negated":     {"for !t.is(a) { }", []string{"!t.is(a): t.is(a)"}},
		"a bound":                 {"if a < b { }", []string{"a < b: a <= b", "a < b: a >= b"}},
		"an equality":             {"_ = func() bool { return a == b }", []string{"_ = func() bool { return a == b }: ", "a == b: a != b"}},
		"both of two conditions":  {"if ok && (t.ok || a != b) { }", []string{"ok: !ok", "ok && (t.ok || a != b): ok || (t.ok || a != b)", "t.ok: !t.ok", "t.ok || a != b: t.ok && a != b", "a != b: a == b"}},
		"a case without a tag":    {"switch { case ok: }", []string{"ok: !ok"}},
		"not one with a tag":      {"switch a { case b: }", nil},
		"a call":                  {"t.call(a)", []string{"t.call(a): "}},
		"a deferred one":          {"defer t.call(a)", []string{"defer t.call(a): "}},
		"an assignment":           {"t.a = b", []string{"t.a = b: "}},
		"not a definition":        {"c := b", nil},
		"a step":                  {"t.a++", []string{"t.a++: "}},
		"a message":               {"t.c <- a", []string{"t.c <- a: "}},
		"not what is waited for":  {"select { case <-t.c: t.call() }", []string{"t.call(): "}},
		"an error":                {"return a, t.err", []string{"t.err: nil"}},
		"no error":                {"return a, nil", nil},
		"one of a function in it": {"f := func() error { return t.err }", []string{"t.err: nil"}},
		"not another's result":    {"f := func() bool { return ok }", nil},
		"a truth":                 {"x := true", []string{"true: false"}},
		"a number":                {"x, y, z, f := 0, 1, 7, 1.5", []string{"0: 1", "1: 0", "7: 70", "1.5: 10*1.5"}},
		"not a log":               {`klog.FromContext(ctx).V(2).Info("a", "b", a == b)`, nil},
		"nor a log of a field":    {`l.logger.V(2).Info("a", "b", a == b)`, nil},
		"nor a lock":              {"t.mu.Lock(); defer t.mu.Unlock()", nil},
		"nor what vet finds":      {"defer cancel()", nil},
	} {
		if got := changes(t, test.body); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestARowNamesAMutantWhereverItsLineIs(t *testing.T) {
	const source = "package p\n\nconst limit = 5\n\nfunc f(a, b bool) bool { return a || a || b }\n"
	rows := func(source string) (rows []string) {
		mutants, err := find("p/p.go", []byte(source))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mutants {
			rows = append(rows, m.row())
		}
		return rows
	}
	want := []string{
		"| p/p.go limit | `5` is `50` |",
		"| p/p.go f | `a \\|\\| a \\|\\| b` is `a \\|\\| a && b` |",
		"| p/p.go f | `a \\|\\| a` is `a && a` |",
	}
	if got := rows(source); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := rows("// Package p is longer now.\n" + source); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	twice := rows("package p\n\nfunc f() { g(); g() }\n")
	if len(twice) != 2 || twice[0] == twice[1] {
		t.Errorf("two that read alike are %q", twice)
	}
}

func TestADiffShowsTheLinesThatChange(t *testing.T) {
	mutants, err := find("p/p.go", []byte("package p\n\nfunc f(a bool) {\n\tif a {\n\t\tg(\n\t\t\ta)\n\t}\n}\n"))
	if err != nil || len(mutants) != 2 {
		t.Fatalf("%v, %v", mutants, err)
	}
	if got, want := mutants[0].diff(), "    -\tif a {\n    +\tif !a {\n"; got != want || mutants[0].line != 4 {
		t.Errorf("line %d: %q", mutants[0].line, got)
	}
	if got, want := mutants[1].diff(), "    -\t\tg(\n    -\t\t\ta)\n    +\t\tif false { g(\n    +\t\t\ta) }\n"; got != want {
		t.Errorf("%q", got)
	}
}

// inModule makes a module the current directory, with a package p.
func inModule(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.Mkdir("p", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const halfTested = `package p

func Less(a, b int) bool { return a < b }

const most uint8 = 200

var _ = most

func Down(n int) (steps int) {
	for ; n > 0; n-- {
		steps++
	}
	return steps
}
`

var ofModule = map[string]string{
	"go.mod": "module example.com/m\n\ngo 1.26\n",
	"p/p.go": halfTested,
	"p/p_test.go": `package p

import "testing"

func TestLess(t *testing.T) {
	if !Less(1, 2) || Less(2, 1) || Down(3) != 3 {
		t.Fail()
	}
}
`,
}

func TestAMutantSurvivesIfTheTestsPassWithIt(t *testing.T) {
	inModule(t, ofModule)
	o := options{runner: runner{command: []string{"go"}, timeout: 3 * time.Second}, packages: []string{"./p"}}
	var out strings.Builder
	if err := mutate(t.Context(), o, &out); !errors.Is(err, errSurvived) {
		t.Fatalf("%v\n%s", err, out.String())
	}
	const equal, bound, unused = "| p/p.go Less | `a < b` is `a <= b` |", "| p/p.go Down | `n > 0` is `n >= 0` |", "2000"
	for _, want := range []string{
		"SURVIVED  p/p.go:3 " + equal, "    +func Less(a, b int) bool { return a <= b }\n",
		"killed    p/p.go:3 | p/p.go Less | `a < b` is `a >= b` |",
		"killed    p/p.go:10 | p/p.go Down | `n--` is `(dropped)` |", // it never ends
		"killed    p/p.go:10 " + bound,
		"killed    p/p.go:11 | p/p.go Down | `steps++` is `(dropped)` |",
		"./p: 6 of 7 mutants killed (86%), 1 survived; 1 more did not compile, 0 are accepted, 0 of 8 were left out\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), unused) {
		t.Errorf("what does not compile is told:\n%s", out.String())
	}
	if now, err := os.ReadFile(filepath.Join("p", "p.go")); err != nil || string(now) != halfTested {
		t.Errorf("the file was changed: %v", err)
	}

	out.Reset()
	o.accepted, o.only = "accepted.md", "Less"
	accept := func(rows string) {
		if err := os.WriteFile(o.accepted, []byte("| where | mutant | why |\n|---|---|---|\n"+rows), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	accept(equal + " nobody asks about equals |\n")
	if err := mutate(t.Context(), o, &out); err != nil || !strings.Contains(out.String(), "1 of 1 mutants killed (100%), 0 survived; 0 more did not compile, 1 are accepted, 6 of 8 were left out") {
		t.Errorf("with the survivor accepted: %v\n%s", err, out.String())
	}
	for name, rows := range map[string]string{
		"stale":            "| p/p.go Less | `a < c` is `a <= c` | it was so once |\n",
		"without a reason": equal + " |\n",
		"twice":            equal + " a |\n" + equal + " b |\n",
	} {
		if accept(rows); mutate(t.Context(), o, &out) == nil {
			t.Errorf("a row that is %s is accepted", name)
		}
	}
	accept("| q/q.go f | `a` is `!a` | of a package that is not asked about |\n")
	if err := mutate(t.Context(), o, &out); !errors.Is(err, errSurvived) {
		t.Error(err)
	}
}

func TestAnInternalPackageIsTestedByItsOwnerToo(t *testing.T) {
	for directory, want := range map[string][]string{
		"pkg/a":               {"."},
		"./pkg/a/internal/b/": {".", "../.."},
		"pkg/a/internal/b/c":  {".", "../../.."},
		"./internal/b":        {"."},
	} {
		if got := testsOf(directory); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", directory, got, want)
		}
	}
}

func TestTestsThatFailByThemselvesAreSaid(t *testing.T) {
	files := map[string]string{}
	for name, text := range ofModule {
		files[name] = strings.ReplaceAll(text, "!Less(1, 2)", "Less(1, 2)")
	}
	inModule(t, files)
	o := options{runner: runner{command: []string{"go"}, timeout: time.Minute}, packages: []string{"p"}}
	if err := mutate(t.Context(), o, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), "mend that first") {
		t.Error(err)
	}
}

func TestTheSeedAloneDecidesWhatIsTried(t *testing.T) {
	var mutants []mutant
	for i := range 100 {
		mutants = append(mutants, mutant{line: i})
	}
	order := func(seed uint64) string {
		var lines []int
		for _, m := range shuffled(mutants, seed) {
			lines = append(lines, m.line)
		}
		return fmt.Sprint(lines)
	}
	if first, again := order(1), order(1); first != again || first == order(2) {
		t.Error("the same seed gives another order, or another the same")
	}
}
