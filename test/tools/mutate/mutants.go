package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mutant is one change of one file.
type mutant struct {
	file     string // from the module's root
	function string // where it is; empty outside of functions
	line     int
	from, to int    // the bytes that are replaced
	old, new string // what by what
	dropped  bool   // it is a statement that is left out
	nth      int    // from 2 on, for one that reads like others of its function
	source   []byte
}

// dropped stands in a mutant's row for a statement that is left out.
const dropped = "(dropped)"

// row returns the mutant's name in the table of accepted mutants. It does not change if other places of the file
// change.
func (m mutant) row() string {
	now := m.new
	if m.dropped {
		now = dropped
	}
	ordinal := ""
	if m.nth > 1 {
		ordinal = fmt.Sprintf(" (no. %d)", m.nth)
	}
	return fmt.Sprintf("| %s %s | `%s` is `%s`%s |", m.file, m.function, inCell(m.old), inCell(now), ordinal)
}

// inCell returns text in the form that fits into a cell of a Markdown table.
func inCell(text string) string {
	first, _, more := strings.Cut(text, "\n")
	if more {
		first += " ..."
	}
	return strings.ReplaceAll(first, "|", `\|`)
}

// mutated returns the file with the change.
func (m mutant) mutated() []byte {
	return slices.Concat(m.source[:m.from], []byte(m.new), m.source[m.to:])
}

// diff shows the lines that are changed.
func (m mutant) diff() string {
	begin := strings.LastIndexByte(string(m.source[:m.from]), '\n') + 1
	end := len(m.source)
	if n := strings.IndexByte(string(m.source[m.to:]), '\n'); n >= 0 {
		end = m.to + n
	}
	var b strings.Builder
	for line := range strings.SplitSeq(string(m.source[begin:end]), "\n") {
		fmt.Fprintf(&b, "    -%s\n", line)
	}
	for line := range strings.SplitSeq(string(m.source[begin:m.from])+m.new+string(m.source[m.to:end]), "\n") {
		fmt.Fprintf(&b, "    +%s\n", line)
	}
	return b.String()
}

// finder finds the mutants of one file.
type finder struct {
	set      *token.FileSet
	file     string
	source   []byte
	function string
	returns  []*ast.FuncType // of the functions around what is looked at
	clauses  []ast.Node      // statements that are no lines of their own, as a loop's step
	found    []mutant
}

// find returns the mutants of a file, in the order of the source.
func find(file string, source []byte) ([]mutant, error) {
	f := &finder{set: token.NewFileSet(), file: file, source: source}
	parsed, err := parser.ParseFile(f.set, file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, declaration := range parsed.Decls {
		f.declaration(declaration)
	}
	slices.SortStableFunc(f.found, func(a, b mutant) int { return a.from - b.from })
	number(f.found)
	return f.found, nil
}

// number numbers mutants with equal rows.
func number(mutants []mutant) {
	seen := map[string]int{}
	for i := range mutants {
		row := mutants[i].row()
		seen[row]++
		mutants[i].nth = seen[row]
	}
}

func (f *finder) declaration(d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		f.function = d.Name.Name
		if d.Recv != nil {
			f.function = receiver(d.Recv.List[0].Type) + "." + f.function
		}
		if d.Body != nil {
			f.body(d.Type, d.Body)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok {
				f.function = v.Names[0].Name
				for _, value := range v.Values {
					ast.Inspect(value, f.look)
				}
			}
		}
	}
}

func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	default:
		return "?"
	}
}

// body looks through a function. t is the function's type.
func (f *finder) body(t *ast.FuncType, body *ast.BlockStmt) {
	f.returns = append(f.returns, t)
	ast.Inspect(body, f.look)
	f.returns = f.returns[:len(f.returns)-1]
}

// look is called by ast.Inspect.
func (f *finder) look(node ast.Node) bool {
	switch node := node.(type) {
	case *ast.FuncLit:
		f.body(node.Type, node.Body)
		return false
	case *ast.ExprStmt:
		return f.call(node, node.X)
	case *ast.DeferStmt:
		return f.call(node, node.Call)
	case *ast.CommClause: // without its case
		for _, statement := range node.Body {
			ast.Inspect(statement, f.look)
		}
		return false
	case *ast.AssignStmt:
		if node.Tok != token.DEFINE {
			f.drop(node)
		}
	case *ast.IncDecStmt, *ast.SendStmt:
		f.drop(node)
	case *ast.ReturnStmt:
		f.result(node)
	case *ast.IfStmt:
		f.clauses = append(f.clauses, node.Init)
		f.condition(node.Cond)
	case *ast.ForStmt:
		f.clauses = append(f.clauses, node.Init, node.Post)
		f.condition(node.Cond)
	case *ast.SwitchStmt:
		f.clauses = append(f.clauses, node.Init)
		if node.Tag == nil {
			for _, clause := range node.Body.List {
				for _, condition := range clause.(*ast.CaseClause).List {
					f.condition(condition)
				}
			}
		}
	case *ast.BinaryExpr:
		f.operator(node)
	case *ast.Ident:
		f.literal(node, map[string]string{"true": "false", "false": "true"}[node.Name])
	case *ast.BasicLit:
		f.literal(node, otherNumber(node))
	}
	return true
}

// unremarkable matches calls that are not dropped: logging, which promises nothing; cancel, whose absence vet finds;
// locking, whose absence the race detector finds; and stopping timers, which the garbage collector collects since Go
// 1.23.
var unremarkable = regexp.MustCompile(`^(klog|logger)\.|\.logger\.|^panic\(|^cancel\(|^(timer|ticker|every)\.Stop\(|\.R?(Unl|L)ock\(\)$`)

// call drops a call. What belongs to a log line is left alone.
func (f *finder) call(statement ast.Stmt, call ast.Expr) (within bool) {
	if unremarkable.MatchString(f.text(call)) {
		return false
	}
	f.drop(statement)
	return true
}

// drop leaves a statement out. What it names stays used; otherwise most of these mutants would not compile.
func (f *finder) drop(statement ast.Node) {
	instead := "if false { " + f.text(statement) + " }"
	if slices.Contains(f.clauses, statement) {
		instead = ""
	}
	f.replace(statement, instead)
	f.found[len(f.found)-1].dropped = true
}

// result replaces a returned error by nil.
func (f *finder) result(r *ast.ReturnStmt) {
	results := f.returns[len(f.returns)-1].Results
	if results == nil || len(r.Results) == 0 || len(r.Results) != results.NumFields() {
		return
	}
	last, t := r.Results[len(r.Results)-1], results.List[len(results.List)-1].Type
	if name, ok := t.(*ast.Ident); ok && name.Name == "error" && f.text(last) != "nil" {
		f.replace(last, "nil")
	}
}

// condition negates the parts of a condition that have no operator of their own.
func (f *finder) condition(e ast.Expr) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		f.condition(e.X)
	case *ast.BinaryExpr:
		if e.Op == token.LAND || e.Op == token.LOR {
			f.condition(e.X)
			f.condition(e.Y)
		}
	case *ast.UnaryExpr:
		if e.Op == token.NOT {
			f.replace(e, f.text(e.X))
		}
	case *ast.CallExpr, *ast.SelectorExpr, *ast.Ident:
		if text := f.text(e); text != "true" && text != "false" {
			f.replace(e, "!"+text)
		}
	}
}

// operators are the replacements of each operator: its negation, and for a bound its neighbour.
var operators = map[token.Token][]token.Token{
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR},
	token.GTR: {token.GEQ, token.LEQ}, token.GEQ: {token.GTR, token.LSS},
}

func (f *finder) operator(e *ast.BinaryExpr) {
	for _, other := range operators[e.Op] {
		x, y := f.offset(e.X.Pos()), f.offset(e.Y.End())
		operator := f.offset(e.OpPos)
		f.add(x, y, string(f.source[x:operator])+other.String()+string(f.source[operator+len(e.Op.String()):y]))
	}
}

// otherNumber returns a number far from that of a literal, or "" if the literal is no number.
func otherNumber(l *ast.BasicLit) string {
	switch n, err := strconv.ParseInt(l.Value, 0, 64); {
	case l.Kind == token.FLOAT:
		return "10*" + l.Value
	case l.Kind != token.INT || err != nil:
		return ""
	case n == 0:
		return "1"
	case n == 1:
		return "0"
	default:
		return strconv.FormatInt(10*n, 10)
	}
}

func (f *finder) literal(e ast.Expr, other string) {
	if other != "" {
		f.replace(e, other)
	}
}

func (f *finder) replace(n ast.Node, by string) { f.add(f.offset(n.Pos()), f.offset(n.End()), by) }

func (f *finder) add(from, to int, by string) {
	f.found = append(f.found, mutant{
		file: f.file, function: f.function, line: 1 + strings.Count(string(f.source[:from]), "\n"),
		from: from, to: to, old: string(f.source[from:to]), new: by, source: f.source,
	})
}

func (f *finder) offset(p token.Pos) int { return f.set.Position(p).Offset }

func (f *finder) text(n ast.Node) string {
	return string(f.source[f.offset(n.Pos()):f.offset(n.End())])
}
