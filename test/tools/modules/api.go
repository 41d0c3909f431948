package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// apiFile has what the libraries of a release export, a line each, below test/releases/<version>.
const apiFile = "api.txt"

// api writes what the libraries of a recorded release export, as they are in its commit.
func api(ctx context.Context, o options) error {
	root, err := filepath.Abs(o.tree)
	if err != nil {
		return err
	}
	from, err := sourceOf(ctx, root, o.version)
	if err != nil {
		return err
	}
	if !from.recorded {
		return fmt.Errorf("-version %s is not in %s: record it first", o.version, record)
	}
	scratch, err := os.MkdirTemp("", "modules-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	git, err := checkout(ctx, root, scratch, from)
	if err != nil {
		return err
	}
	lines, err := exported(git.directory)
	if err != nil {
		return err
	}
	file := filepath.Join(root, filepath.Dir(filepath.FromSlash(record)), o.version, apiFile)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // it is public
		return err
	}
	return os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644) //nolint:gosec // it is public
}

// exported returns what the libraries of a tree export, a line each, sorted. A line that a newer version lacks can keep
// a program from being compiled with it: so a function is one line with its types, and an interface one with all its
// methods, while each field of a struct has its own. Packages are called by their directory, and types of others by the
// names that the code has for them. It is read from the source: nothing is compiled, and no other module is needed.
func exported(root string) ([]string, error) {
	t, err := readTree(root)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, m := range t.libraries() {
		err := filepath.WalkDir(m.directory, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.IsDir() {
				return err
			}
			if base := entry.Name(); name != m.directory && (exists(filepath.Join(name, "go.mod")) || base == "internal" || base == "testdata") {
				return filepath.SkipDir
			}
			short, err := filepath.Rel(root, name)
			if err != nil {
				return err
			}
			of, err := exportedBy(name)
			for _, line := range of {
				lines = append(lines, filepath.ToSlash(short)+": "+line)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines), nil
}

// exportedBy returns what the package in a directory exports; nothing if there is none, or a program.
func exportedBy(directory string) (lines []string, err error) {
	// What is for other systems is not looked at.
	of := build.Default
	of.GOOS, of.GOARCH, of.CgoEnabled = "linux", "amd64", false
	p, err := of.ImportDir(directory, 0)
	if none := (*build.NoGoError)(nil); errors.As(err, &none) || err == nil && p.IsCommand() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(token.NewFileSet(), path.Join(directory, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, dropNames)
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				lines = append(lines, functionLine(d)...)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					lines = append(lines, specLines(d.Tok, s)...)
				}
			}
		}
	}
	return lines, nil
}

func functionLine(d *ast.FuncDecl) []string {
	if !d.Name.IsExported() {
		return nil
	}
	if d.Recv == nil {
		return []string{"func " + d.Name.Name + parameters(d.Type.TypeParams) + signature(d.Type)}
	}
	receiver := d.Recv.List[0].Type
	base := receiver
	if star, ok := base.(*ast.StarExpr); ok {
		base = star.X
	}
	switch generic := base.(type) {
	case *ast.IndexExpr:
		base = generic.X
	case *ast.IndexListExpr:
		base = generic.X
	}
	if name, ok := base.(*ast.Ident); !ok || !name.IsExported() {
		return nil
	}
	return []string{"func (" + types.ExprString(receiver) + ") " + d.Name.Name + signature(d.Type)}
}

func specLines(what token.Token, s ast.Spec) (lines []string) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for n, name := range s.Names {
			if !name.IsExported() {
				continue
			}
			line := what.String() + " " + name.Name
			if s.Type != nil {
				line += " " + types.ExprString(s.Type)
			}
			// Programs may have written down what a constant is.
			if what == token.CONST && n < len(s.Values) {
				line += " = " + types.ExprString(s.Values[n])
			}
			lines = append(lines, line)
		}
	case *ast.TypeSpec:
		if s.Name.IsExported() {
			lines = typeLines(s)
		}
	}
	return lines
}

func typeLines(s *ast.TypeSpec) []string {
	line := "type " + s.Name.Name + parameters(s.TypeParams)
	switch is := s.Type.(type) {
	case *ast.StructType:
		if s.Assign.IsValid() {
			break
		}
		lines := []string{line + " struct"}
		for _, f := range is.Fields.List {
			if len(f.Names) == 0 {
				lines = append(lines, line+" struct: embeds "+types.ExprString(f.Type))
			}
			for _, name := range f.Names {
				if name.IsExported() {
					lines = append(lines, line+" struct: "+name.Name+" "+types.ExprString(f.Type))
				}
			}
		}
		return lines
	case *ast.InterfaceType:
		var all []string
		for _, f := range is.Methods.List {
			if method, ok := f.Type.(*ast.FuncType); ok && len(f.Names) > 0 {
				all = append(all, f.Names[0].Name+signature(method))
			} else {
				all = append(all, types.ExprString(f.Type))
			}
		}
		slices.Sort(all)
		return []string{line + " interface{ " + strings.Join(all, "; ") + " }"}
	}
	if s.Assign.IsValid() {
		line += " ="
	}
	return []string{line + " " + types.ExprString(s.Type)}
}

// parameters returns the type parameters of a function or a type.
func parameters(of *ast.FieldList) string {
	if of == nil {
		return ""
	}
	var all []string
	for _, f := range of.List {
		for _, name := range f.Names {
			all = append(all, name.Name+" "+types.ExprString(f.Type))
		}
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// dropNames drops the names of what functions take and return: whoever calls them never writes these.
func dropNames(n ast.Node) bool {
	f, ok := n.(*ast.FuncType)
	if !ok {
		return true
	}
	for _, list := range []*ast.FieldList{f.Params, f.Results} {
		if list == nil {
			continue
		}
		var unnamed []*ast.Field
		for _, field := range list.List {
			for range max(1, len(field.Names)) {
				unnamed = append(unnamed, &ast.Field{Type: field.Type})
			}
		}
		list.List = unnamed
	}
	return true
}

// signature returns the types of what a function takes and returns.
func signature(f *ast.FuncType) string {
	out := "(" + strings.Join(typesOf(f.Params), ", ") + ")"
	switch results := typesOf(f.Results); len(results) {
	case 0:
	case 1:
		out += " " + results[0]
	default:
		out += " (" + strings.Join(results, ", ") + ")"
	}
	return out
}

func typesOf(of *ast.FieldList) (all []string) {
	if of == nil {
		return nil
	}
	for _, f := range of.List {
		all = append(all, types.ExprString(f.Type))
	}
	return all
}
