package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// source is the product's code.
type source struct {
	packages []*goPackage // sorted by path
}

// goPackage is the code of one directory, without tests.
type goPackage struct {
	path      string // such as pkg/election
	files     []*ast.File
	constants map[string]ast.Expr
}

// read parses all packages below a directory that is called pkg.
func read(dir string) (*source, error) {
	found, positions := map[string]*goPackage{}, token.NewFileSet()
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(positions, name, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, filepath.Dir(name))
		if err != nil {
			return err
		}
		at := path.Join("pkg", filepath.ToSlash(rel))
		if found[at] == nil {
			found[at] = &goPackage{path: at, constants: map[string]ast.Expr{}}
		}
		found[at].add(file)
		return nil
	})
	s := &source{}
	for _, p := range found {
		s.packages = append(s.packages, p)
	}
	slices.SortFunc(s.packages, func(a, b *goPackage) int { return strings.Compare(a.path, b.path) })
	return s, err
}

// add adds a file and its constants.
func (p *goPackage) add(file *ast.File) {
	p.files = append(p.files, file)
	for _, d := range file.Decls {
		declared, ok := d.(*ast.GenDecl)
		if !ok || declared.Tok != token.CONST {
			continue
		}
		for _, spec := range declared.Specs {
			c := spec.(*ast.ValueSpec) //nolint:errcheck,forcetypeassert // it is one in a declaration of constants
			for n, value := range c.Values {
				p.constants[c.Names[n].Name] = value
			}
		}
	}
}

// each calls do for each node of the package.
func (p *goPackage) each(do func(ast.Node)) {
	for _, f := range p.files {
		ast.Inspect(f, func(n ast.Node) bool {
			do(n)
			return true
		})
	}
}

// text returns the value of a constant string.
func (p *goPackage) text(e ast.Expr) (string, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			return strconv.Unquote(e.Value)
		}
	case *ast.Ident:
		if value := p.constants[e.Name]; value != nil {
			return p.text(value)
		}
	case *ast.BinaryExpr:
		left, err := p.text(e.X)
		if err != nil {
			return "", err
		}
		right, err := p.text(e.Y)
		return left + right, err
	}
	return "", fmt.Errorf("%s: there is a text that is no constant of the package: make it one, or teach test/tools/reference", p.path)
}

// selected returns the name that an expression selects from a package: "NewGauge" of metrics.NewGauge. Empty: it does
// not.
func selected(e ast.Expr, from string) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		if x, ok := s.X.(*ast.Ident); ok && x.Name == from {
			return s.Sel.Name
		}
	}
	return ""
}

// field returns a field of a composite literal, or nil.
func field(of *ast.CompositeLit, name string) ast.Expr {
	for _, e := range of.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if key, ok := kv.Key.(*ast.Ident); ok && key.Name == name {
				return kv.Value
			}
		}
	}
	return nil
}

// cell escapes a text for a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", `\<`, "*", `\*`, "\n", "<br>").Replace(strings.TrimSpace(text))
}
