package status

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A kind that is about nothing would be listed under no check of `regent doctor`, which would say that all is well.
func TestEachKindOfProblemIsAboutSomethingAndHasASection(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "kinds.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		if of, ok := spec.Type.(*ast.Ident); !ok || of.Name != "kind" {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		found++
		is := about[kind(text)]
		if !slices.Contains(Matters, is.matter) {
			t.Errorf("%s is about %q, which is none of Matters", text, is.matter)
		}
		page, anchor, _ := strings.Cut(is.section, "#")
		if _, err := os.Stat("../../../" + page); err != nil || anchor == "" {
			t.Errorf("%s: the docs have no section %q: %v", text, is.section, err)
		}
		return true
	})
	if found < 20 || found != len(about) {
		t.Errorf("%d kinds, and %d are about something", found, len(about))
	}
}
