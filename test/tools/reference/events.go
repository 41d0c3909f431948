package main

import (
	"errors"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const eventsIntro = `# Events

What Regent itself writes Events about. Those of terms and controllers are about the Lease, in the logical cluster ` + "`system:admin`" + `:

` + "```sh" + `
kubectl --context system:admin describe lease -n kube-system regent-controllers
` + "```" + `

The reasons and types are those in the code; what they mean is said in [OPERATIONS.md](../OPERATIONS.md#who-leads-and-why), too, with what to do.

| reason | type | meaning |
|---|---|---|
`

// eventsPage has each reason with the meaning that docs/OPERATIONS.md gives it. Both must know the same reasons.
func eventsPage(code *source, root string) (string, error) {
	operations, err := os.ReadFile(filepath.Join(root, "docs", "OPERATIONS.md"))
	if err != nil {
		return "", err
	}
	types, meanings := code.events(), map[string]string{}
	_, table, found := strings.Cut(string(operations), "| Event | meaning |")
	table, _, ended := strings.Cut(table, "\n\n")
	if !found || !ended {
		return "", errors.New("there is no table of Events in docs/OPERATIONS.md")
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (.*?) \\|").FindAllStringSubmatch(table, -1) {
		meanings[row[1]] = fromBelow(row[2])
		if types[row[1]] == "" {
			err = errors.Join(err, fmt.Errorf("%s is in docs/OPERATIONS.md, and nothing in the code writes it", row[1]))
		}
	}
	var page strings.Builder
	page.WriteString(generated + eventsIntro)
	for _, reason := range slices.Sorted(maps.Keys(types)) {
		if meanings[reason] == "" {
			err = errors.Join(err, fmt.Errorf("%s is written, and docs/OPERATIONS.md does not say what it means", reason))
		}
		fmt.Fprintf(&page, "| `%s` | %s | %s |\n", reason, types[reason], meanings[reason])
	}
	return page.String(), err
}

// fromBelow makes links of a page in docs fit a page below it.
func fromBelow(text string) string {
	return regexp.MustCompile(`\]\(([A-Z-]+\.md)`).ReplaceAllString(text, "](../$1")
}

// events returns the type of each reason that the code gives to an Event. A reason is a constant beside a constant that
// says whether it is a warning: as arguments of notify and record, in an assignment, or in an Event.
func (s *source) events() map[string]string {
	out := reasons{}
	for _, p := range s.packages {
		beside := func(list []ast.Expr) {
			for n := 0; n+1 < len(list); n++ {
				if warning, ok := list[n+1].(*ast.Ident); ok && (warning.Name == "true" || warning.Name == "false") {
					out.add(p, list[n], warning.Name == "true")
				}
			}
		}
		p.each(func(n ast.Node) {
			switch n := n.(type) {
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && (f.Sel.Name == "notify" || f.Sel.Name == "record") {
					beside(n.Args)
				}
			case *ast.AssignStmt:
				beside(n.Rhs)
			case *ast.CompositeLit:
				if selected(n.Type, "corev1") == "Event" && field(n, "Reason") != nil {
					out.add(p, field(n, "Reason"), selected(field(n, "Type"), "corev1") == "EventTypeWarning")
				}
			}
		})
	}
	return out
}

// reasons are the types of Events, by reason.
type reasons map[string]string

// add adds a reason, if the expression is a constant of the package that can be one.
func (r reasons) add(p *goPackage, e ast.Expr, warning bool) {
	reason, err := p.text(e)
	if _, named := e.(*ast.Ident); !named || err != nil || !regexp.MustCompile(`^([A-Z][a-z]+)+$`).MatchString(reason) {
		return
	}
	if r[reason] = "Normal"; warning {
		r[reason] = "Warning"
	}
}
