package conventions

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const kcpPatch = "../../examples/kcp/regent.patch"

// kcp itself is not here to compile the patch with: adopt.sh does that. What this test can tell is that git will read
// the patch, that it is as short as the documentation says, and that everything it uses of our packages is there.
func TestKcpAdoptsThePackagesInAHundredLines(t *testing.T) {
	const most = 100
	p := parsePatch(t, string(readFile(t, kcpPatch)))
	added := 0
	for name, lines := range p.added {
		t.Logf("%s: %d lines added, %d deleted", name, len(lines), p.deleted[name])
		added += len(lines)
	}
	if added == 0 || added > most {
		t.Errorf("the patch adds %d lines, want 1 to %d", added, most)
	}

	packages := map[string]*exported{} // by name
	for _, lines := range p.added {
		for _, found := range regexp.MustCompile(`"`+regexp.QuoteMeta(module)+`(pkg/[\w/]+)"`).FindAllStringSubmatch(strings.Join(lines, "\n"), -1) {
			packages[filepath.Base(found[1])] = exportedBy(t, filepath.Join("../..", found[1]))
		}
	}
	for _, want := range []string{"election", "etcdfence", "fence", "join", "leader"} {
		if packages[want] == nil {
			t.Fatalf("the patch does not import %s: what this test looks for is not there", want)
		}
	}
	for name, lines := range p.added {
		for _, fault := range misused(packages, strings.Join(lines, "\n")) {
			t.Errorf("%s: the patch uses %s", name, fault)
		}
	}
}

// A patch that git refuses, or that uses what is not there, is noticed.
func TestFaultsOfThePatchAreFound(t *testing.T) {
	text := string(readFile(t, kcpPatch))
	if _, fault := readPatch(strings.Replace(text, "\n+", "\n", 1)); fault == "" {
		t.Error("a hunk that is a line short is taken")
	}
	packages := map[string]*exported{"join": exportedBy(t, "../../pkg/election/join"), "leader": exportedBy(t, "../../pkg/election/leader")}
	for source, want := range map[string]string{
		"join.OnStart(f)":                                       "join.OnStart",
		"leader.Config{Namespace: a, Nickname: b}":              "leader.Config.Nickname",
		"scope := join.New(ctx, join.Options{})\nscope.Close()": "join.Scope.Close",
		"var l *leader.Leader\nl.Halt()":                        "leader.Leader.Halt",
		"func (s *Server) newLeader() (*leader.Leader, error) {\nelected, err := s.newLeader()\nelected.Halt()": "leader.Leader.Halt",
	} {
		if got := misused(packages, source); len(got) != 1 || !strings.HasPrefix(got[0], want+",") {
			t.Errorf("in %q these faults are found: %q, want %s", source, got, want)
		}
	}
}

// patch has lines by the names of the files that it changes.
type patch struct {
	added   map[string][]string
	deleted map[string]int
}

func parsePatch(t *testing.T, text string) patch {
	t.Helper()
	p, fault := readPatch(text)
	if fault != "" {
		t.Fatalf("%s: %s", kcpPatch, fault)
	}
	return p
}

var hunk = regexp.MustCompile(`^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@`)

// readPatch reads what git diff has written. The second result says what is wrong with it.
func readPatch(text string) (p patch, fault string) {
	p = patch{added: map[string][]string{}, deleted: map[string]int{}}
	file, before, after := "", 0, 0 // how many lines of the hunk are still to come
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		at := "line " + strconv.Itoa(i+1) + ": "
		switch head := hunk.FindStringSubmatch(line); {
		case before > 0 || after > 0:
			switch line[:min(1, len(line))] {
			case "+":
				p.added[file] = append(p.added[file], line[1:])
				after--
			case "-":
				p.deleted[file]++
				before--
			case " ":
				before, after = before-1, after-1
			default:
				return p, at + "the hunk before has fewer lines than it says"
			}
			if before < 0 || after < 0 {
				return p, at + "the hunk has more lines than it says"
			}
		case head != nil:
			if file == "" {
				return p, at + "a hunk of no file"
			}
			before, after = lines(head[1]), lines(head[2])
		case strings.HasPrefix(line, "+++ b/"):
			file = strings.TrimPrefix(line, "+++ b/")
		case strings.HasPrefix(line, "diff --git "), strings.HasPrefix(line, "index "), strings.HasPrefix(line, "--- a/"):
		default:
			return p, at + "neither of a hunk nor of a head: " + line
		}
	}
	if before > 0 || after > 0 {
		return p, "the last hunk has fewer lines than it says"
	}
	return p, ""
}

// lines is the length in the head of a hunk.
func lines(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 1 // it is left out then
	}
	return n
}

// exported is what a package exports: names, and by type those of its fields and methods.
type exported struct {
	names   map[string]bool
	members map[string]map[string]bool
	results map[string]string // the type of this package that a function returns first
}

func exportedBy(t *testing.T, directory string) *exported {
	t.Helper()
	//nolint:staticcheck // its successor needs a module that nothing else here needs
	parsed, err := parser.ParseDir(token.NewFileSet(), directory, func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }, parser.SkipObjectResolution)
	if err != nil || len(parsed) != 1 {
		t.Fatalf("%s: %d packages, %v", directory, len(parsed), err)
	}
	e := &exported{names: map[string]bool{}, members: map[string]map[string]bool{}, results: map[string]string{}}
	for _, p := range parsed {
		for _, file := range p.Files {
			for _, declared := range file.Decls {
				e.note(declared)
			}
		}
	}
	return e
}

func (e *exported) note(declared ast.Decl) {
	switch d := declared.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil {
			e.member(typeName(d.Recv.List[0].Type), d.Name.Name)
			return
		}
		e.names[d.Name.Name] = true
		if d.Type.Results != nil {
			e.results[d.Name.Name] = typeName(d.Type.Results.List[0].Type)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range s.Names {
					e.names[name.Name] = true
				}
			case *ast.TypeSpec:
				e.names[s.Name.Name] = true
				e.noteFields(s)
			}
		}
	}
}

func (e *exported) noteFields(s *ast.TypeSpec) {
	var fields *ast.FieldList
	switch of := s.Type.(type) {
	case *ast.StructType:
		fields = of.Fields
	case *ast.InterfaceType:
		fields = of.Methods
	default:
		return
	}
	for _, field := range fields.List {
		for _, name := range field.Names {
			e.member(s.Name.Name, name.Name)
		}
	}
}

func (e *exported) member(of, name string) {
	if e.members[of] == nil {
		e.members[of] = map[string]bool{}
	}
	e.members[of][name] = true
}

// typeName is the name of a type of the package itself, or of a pointer to one.
func typeName(x ast.Expr) string {
	if star, ok := x.(*ast.StarExpr); ok {
		x = star.X
	}
	if name, ok := x.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

var (
	inString = regexp.MustCompile(`"[^"\n]*"`)
	comment  = regexp.MustCompile(`//.*`)
	// The ways in which the patch makes a variable of a type of ours.
	declared = regexp.MustCompile(`\b(\w+) \*?(\w+)\.([A-Z]\w*)\b`)
	assigned = regexp.MustCompile(`\b(\w+)(?:, \w+)? :?= (\w+)\.([A-Z]\w*)\(`)
	called   = regexp.MustCompile(`\b(\w+)(?:, \w+)? :?= s\.(\w+)\(\)`)
	returns  = regexp.MustCompile(`\) (\w+)\(\) \(\*(\w+)\.(\w+),`)
	literal  = regexp.MustCompile(`\b(\w+)\.([A-Z]\w*)\{([^{}]*)\}`)
	key      = regexp.MustCompile(`(?m)(?:^|[\s,])(\w+):`)
	selector = regexp.MustCompile(`(^|[^\w.])(\w+)\.([A-Z]\w*)`)
)

// misused returns what of our packages the lines use that is not there, with a comma and the reason.
func misused(packages map[string]*exported, source string) (faults []string) {
	source = comment.ReplaceAllString(inString.ReplaceAllString(source, `""`), "")
	variables := map[string][2]string{} // package and type
	for _, m := range declared.FindAllStringSubmatch(source, -1) {
		if packages[m[2]] != nil {
			variables[m[1]] = [2]string{m[2], m[3]}
		}
	}
	for _, m := range assigned.FindAllStringSubmatch(source, -1) {
		if p := packages[m[2]]; p != nil && p.results[m[3]] != "" {
			variables[m[1]] = [2]string{m[2], p.results[m[3]]}
		}
	}
	for _, call := range called.FindAllStringSubmatch(source, -1) {
		for _, m := range returns.FindAllStringSubmatch(source, -1) {
			if m[1] == call[2] && packages[m[2]] != nil {
				variables[call[1]] = [2]string{m[2], m[3]}
			}
		}
	}
	wrong := map[string]bool{}
	for _, m := range selector.FindAllStringSubmatch(source, -1) {
		if p := packages[m[2]]; p != nil && !p.names[m[3]] {
			wrong[m[2]+"."+m[3]+", which the package does not export"] = true
		}
		if of, ok := variables[m[2]]; ok && packages[m[2]] == nil && !packages[of[0]].members[of[1]][m[3]] {
			wrong[of[0]+"."+of[1]+"."+m[3]+", which the type does not have"] = true
		}
	}
	for _, m := range literal.FindAllStringSubmatch(source, -1) {
		p := packages[m[1]]
		if p == nil {
			continue
		}
		for _, k := range key.FindAllStringSubmatch(m[3], -1) {
			if !p.members[m[2]][k[1]] {
				wrong[m[1]+"."+m[2]+"."+k[1]+", which the type does not have"] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(wrong))
}
