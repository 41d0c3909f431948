package ui

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extensionast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"

	"github.com/regent-project/regent/pkg/server/build"
)

// docsPath is where the documentation is, below Path: docs/OPERATIONS.md of the repository is docs/OPERATIONS, and
// docs/README.md is docs/ itself. Pages from above docs are beside them; there README.md is docs/REGENT.
const docsPath = "docs/"

const startPage = "docs/README.md"

// lineBreak is the only HTML that pages have: in cells of tables there is no other way.
const lineBreak = "<br>"

//go:embed docs.html
var layout string

// docs serves the repository's pages, made into HTML when they are first asked for.
type docs struct {
	source   fs.FS
	names    map[string]string      // by path in the repository, the name below docsPath
	files    map[string]func() file // by name
	groups   func() []group
	markdown goldmark.Markdown
	layout   *template.Template
}

// link is a page or a section, by its name in links.
type link struct{ Name, Title string }

// group has the pages that the start page names below one heading.
type group struct {
	Title string
	Pages []link
}

// view is what the layout shows.
type view struct {
	link
	Version  string
	Sections []link
	Groups   []group
	Content  template.HTML
}

// To returns how the page links to another one.
func (v view) To(name string) string { return between(v.Name, name) }

// between returns the relative link from one name to another: a front has all of it below /shards/<name>.
func between(from, to string) string {
	return cmp.Or(strings.Repeat("../", strings.Count(from, "/"))+to, "./")
}

func newDocs(source fs.FS) *docs {
	// Alignment would be an inline style, which the policy forbids.
	table := extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute))
	d := &docs{
		source: source, names: map[string]string{}, files: map[string]func() file{},
		markdown: goldmark.New(goldmark.WithExtensions(table)), layout: template.Must(template.New("").Parse(layout)),
	}
	d.groups = sync.OnceValue(d.readGroups)
	err := fs.WalkDir(source, ".", func(p string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			d.names[p] = nameOf(p)
			d.files[nameOf(p)] = sync.OnceValue(func() file { return d.open(p) })
		}
		return err
	})
	if err != nil {
		panic(err) // the files are embedded
	}
	return d
}

func nameOf(p string) string {
	switch p {
	case startPage:
		return ""
	case "README.md":
		return "REGENT"
	}
	return strings.TrimPrefix(strings.TrimSuffix(p, ".md"), "docs/")
}

// serve answers a request for docsPath, or what is below it.
func (d *docs) serve(w http.ResponseWriter, req *http.Request, at string) {
	name, isBelow := strings.CutPrefix(at, docsPath)
	if !isBelow {
		redirect(w, docsPath)
		return
	}
	short := strings.TrimSuffix(name, ".md")
	if short == "README" {
		short = ""
	}
	open, ok := d.files[short]
	switch {
	case !ok:
		content := d.fill(view{link: link{Name: name, Title: "There is no page " + name}})
		newFile(name+".html", content).serve(w, req, http.StatusNotFound)
	case short != name:
		redirect(w, path.Base(short)) // "." is the start page
	default:
		open().serve(w, req, http.StatusOK)
	}
}

// redirect leads elsewhere by a relative link, which http.Redirect would make absolute.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusMovedPermanently)
}

func (d *docs) read(p string) []byte {
	content, err := fs.ReadFile(d.source, p)
	if err != nil {
		panic(err) // the files are embedded
	}
	return content
}

func (d *docs) open(p string) file {
	source := d.read(p)
	if path.Ext(p) != ".md" {
		return newFile(p, source)
	}
	root := d.markdown.Parser().Parse(text.NewReader(source))
	v := view{link: link{d.names[p], title(source)}, Sections: d.adapt(root, source, p)}
	var out bytes.Buffer
	if err := d.markdown.Renderer().Render(&out, source, root); err != nil {
		panic(err) // a buffer takes everything
	}
	// Only tables have these tags: other HTML of a source is left out.
	scrolling := strings.NewReplacer("<table>", `<div class="scroller"><table>`, "</table>", "</table></div>", "<!-- raw HTML omitted -->\n", "")
	v.Content = template.HTML(scrolling.Replace(out.String()))
	return newFile(p+".html", d.fill(v))
}

func (d *docs) fill(v view) []byte {
	v.Version, v.Groups = build.Info().GitVersion, d.groups()
	var out bytes.Buffer
	if err := d.layout.Execute(&out, v); err != nil {
		panic(err) // a test renders all pages
	}
	return out.Bytes()
}

// title returns a page's first heading.
func title(source []byte) string {
	_, heading, _ := strings.Cut("\n"+string(source), "\n# ")
	heading, _, _ = strings.Cut(heading, "\n")
	return heading
}

// adapt has links lead to where pages are served, and headings be found by GitHub's anchors. It returns the sections.
func (d *docs) adapt(root ast.Node, source []byte, p string) (sections []link) {
	var inSource []*ast.Link
	var breaks []ast.Node
	anchors := map[string]bool{}
	each(root, func(n ast.Node) {
		switch n := n.(type) {
		case *ast.Heading:
			words := textOf(n, source)
			anchor := anchorOf(words, anchors)
			n.SetAttributeString("id", []byte(anchor))
			if n.Level == 2 {
				sections = append(sections, link{anchor, words})
			}
		case *ast.RawHTML:
			if string(n.Segments.Value(source)) == lineBreak {
				breaks = append(breaks, n)
			}
		case *ast.Image:
			to, _ := d.href(p, string(n.Destination))
			n.Destination = []byte(to)
		case *ast.Link:
			to, ok := d.href(p, string(n.Destination))
			if n.Destination = []byte(to); !ok {
				inSource = append(inSource, n)
			}
		}
	})
	for _, l := range inSource {
		asWords(l, source)
	}
	for _, n := range breaks {
		s := ast.NewString([]byte(lineBreak))
		s.SetCode(true) // it is written as it is
		n.Parent().ReplaceChild(n.Parent(), n, s)
	}
	return sections
}

// href returns how a page links to what its source names. If that is in the repository and not served, it returns the
// path in the repository, and false.
func (d *docs) href(p, to string) (string, bool) {
	file, anchor, found := strings.Cut(to, "#")
	if file == "" || strings.Contains(file, "://") {
		return to, true
	}
	target := path.Join(path.Dir(p), file)
	name, ok := d.names[target]
	if !ok {
		return target, false
	}
	out := between(d.names[p], name)
	if found {
		out += "#" + anchor
	}
	return out, true
}

// asWords replaces a link to what is not served by its text, and the path in the repository where the text is not that.
func asWords(l *ast.Link, source []byte) {
	parent, words := l.Parent(), textOf(l, source)
	for c := l.FirstChild(); c != nil; c = l.FirstChild() {
		parent.InsertBefore(parent, l, c)
	}
	if to := string(l.Destination); !strings.HasPrefix(to, words) {
		parent.InsertBefore(parent, l, ast.NewString([]byte(" ("+to+")")))
	}
	parent.RemoveChild(parent, l)
}

// anchorOf returns the anchor that GitHub gives to a heading: of two that are the same the second ends with -1.
func anchorOf(words string, taken map[string]bool) string {
	base := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsNumber(r):
			return unicode.ToLower(r)
		}
		return -1
	}, words)
	anchor := base
	for n := 1; taken[anchor]; n++ {
		anchor = fmt.Sprintf("%s-%d", base, n)
	}
	taken[anchor] = true
	return anchor
}

// readGroups returns the pages in the order of the start page. Its tables repeat what its lists have.
func (d *docs) readGroups() []group {
	groups := []group{{Title: "Regent"}}
	add := func(p string) {
		g := &groups[len(groups)-1]
		if name, ok := d.names[p]; ok && !slices.ContainsFunc(g.Pages, func(l link) bool { return l.Name == name }) {
			g.Pages = append(g.Pages, link{name, title(d.read(p))})
		}
	}
	add(startPage)
	add("README.md")
	source := d.read(startPage)
	root := d.markdown.Parser().Parse(text.NewReader(source))
	for n := root.FirstChild(); n != nil; n = n.NextSibling() {
		if n.Kind() == extensionast.KindTable {
			continue
		}
		if h, ok := n.(*ast.Heading); ok && h.Level == 2 {
			groups = append(groups, group{Title: textOf(h, source)})
		}
		each(n, func(n ast.Node) {
			if l, ok := n.(*ast.Link); ok {
				p, _, _ := strings.Cut(string(l.Destination), "#")
				add(path.Join(path.Dir(startPage), p))
			}
		})
	}
	return groups
}

// textOf returns the words of a node.
func textOf(n ast.Node, source []byte) string {
	var out strings.Builder
	each(n, func(n ast.Node) {
		if t, ok := n.(*ast.Text); ok {
			out.Write(t.Segment.Value(source))
			if t.SoftLineBreak() {
				out.WriteByte(' ')
			}
		}
	})
	return out.String()
}

// each calls f for a node and all below it.
func each(n ast.Node, f func(ast.Node)) {
	_ = ast.Walk(n, func(n ast.Node, enters bool) (ast.WalkStatus, error) { // f has no errors
		if enters {
			f(n)
		}
		return ast.WalkContinue, nil
	})
}
