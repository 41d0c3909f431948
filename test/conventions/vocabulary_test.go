package conventions

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/regent-project/regent/pkg/election"
)

// paragraph returns the lines of a page from one that matches a pattern to the next empty one.
func paragraph(t *testing.T, page, pattern string) string {
	t.Helper()
	text := regexp.MustCompile(`(?ms)^` + pattern + `.*?(\n\n|\z)`).FindString(string(readFile(t, "../../docs/"+page)))
	if text == "" {
		t.Fatalf("docs/%s has nothing that matches %q", page, pattern)
	}
	return text
}

func TestTheDocsNameEachModeAndEachTrigger(t *testing.T) {
	explained, words := paragraph(t, "ELECTION.md", "- \\*\\*"+string(election.Modes[0].Name())+"\\*\\*"), paragraph(t, "ARCHITECTURE.md", `\| \*\*mode\*\* \|`)
	for _, mode := range election.Modes {
		name := string(mode.Name())
		if !strings.Contains(explained, "- **"+name+"**: ") {
			t.Errorf("the list at the beginning of docs/ELECTION.md does not say what mode %s is", name)
		}
		if !strings.Contains(words, "`"+name+"`") {
			t.Errorf("the row `mode` in docs/ARCHITECTURE.md does not name %s", name)
		}
	}
	pages := map[string]string{"FAILOVER.md": paragraph(t, "FAILOVER.md", "Triggers: "), "OPERATIONS.md": paragraph(t, "OPERATIONS.md", "\\| `began`, `trigger` \\|")}
	for _, trigger := range election.Triggers {
		for page, text := range pages {
			if !strings.Contains(text, "`"+string(trigger)+"`") {
				t.Errorf("docs/%s does not name trigger %s in: %s", page, trigger, text)
			}
		}
	}
}

// ownAnnotations are those that only servers and `regent` read and write, with who does.
var ownAnnotations = map[string]string{
	"internal.regent.dev/built-in":           "the API server",
	"internal.regent.dev/tombstone":          "the API server",
	"internal.regent.dev/coming":             "the API server",
	"internal.regent.dev/epoch":              "the API server",
	"internal.regent.dev/leaving":            "the API server, of a workspace that moves",
	"internal.regent.dev/moved":              "the API server, of a workspace that has moved",
	"internal.regent.dev/coming-from":        "the API server, of a workspace that moves",
	"internal.regent.dev/complete":           "the API server, of a workspace that moves",
	"internal.regent.dev/left":               "the API server, of a workspace that moves",
	"internal.regent.dev/vacated":            "the API server, of a workspace that has moved",
	"internal.regent.dev/path":               "the API server, of a workspace that moves",
	"internal.regent.dev/resume":             "the API server, of a workspace that has moved",
	"internal.regent.dev/origins":            "the API server, of a workspace that has moved",
	"experimental.core.kcp.io/unschedulable": "`regent shard cordon`; its name is kcp's",
	"internal.apis.kcp.io/export-cluster":    "the controller of bindings; its name is kcp's",
	"regent.dev/authority":                   "`regent shard`",
	"regent.dev/placement":                   "the controller of workspaces, which tells its message as a condition",
	"regent.dev/removed":                     "`regent shard remove`",
	"regent.dev/replicas":                    "`regent shard`",
}

// What users may write on objects is documented.
func TestTheDocsNameEachAnnotationForUsers(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var docs strings.Builder
	for _, page := range pages {
		docs.Write(readFile(t, page))
	}
	found := 0
	for _, name := range productFiles(t, "../../pkg/clusters") {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || !strings.HasSuffix(spec.Names[0].Name, "Annotation") || len(spec.Values) == 0 {
				return true
			}
			value, ok := spec.Values[0].(*ast.BasicLit)
			if !ok {
				return true
			}
			found++
			annotation, err := strconv.Unquote(value.Value)
			if err != nil {
				t.Fatal(err)
			}
			if documented := strings.Contains(docs.String(), annotation); documented == (ownAnnotations[annotation] != "") {
				t.Errorf("%s: may users write annotation %s? Say so in docs, or add it to ownAnnotations", filepath.Base(name), annotation)
			}
			return true
		})
	}
	if found < 8 {
		t.Errorf("only %d annotations were found", found)
	}
}
