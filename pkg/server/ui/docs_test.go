package ui

import (
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"

	"github.com/regent-project/regent"
)

// site is all that is served below docsPath, by URL path.
type site struct {
	testing.TB
	handler http.Handler
	pages   map[string]string
}

// walk reads the page of each file of the repository.
func walk(t *testing.T) *site {
	t.Helper()
	s := &site{t, Handler(regent.Docs), map[string]string{}}
	err := fs.WalkDir(regent.Docs, ".", func(p string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		at := Path + docsPath + nameOf(p)
		if _, taken := s.pages[at]; taken {
			t.Errorf("%s is at %s, where another page is", p, at)
		}
		got := s.get(http.MethodGet, at, "")
		if s.pages[at] = got.Body.String(); got.Code != http.StatusOK {
			t.Errorf("%s: %d", at, got.Code)
		}
		return nil
	})
	if err != nil || len(s.pages) < 30 {
		t.Fatalf("%d pages, %v", len(s.pages), err)
	}
	return s
}

func (s *site) get(method, at, etag string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, at, nil)
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, req)
	return w
}

// fault says why a link of a page leads nowhere, or "".
func (s *site) fault(from, link string) string {
	base, err := url.Parse(from)
	if err != nil {
		return err.Error()
	}
	to, err := base.Parse(html.UnescapeString(link))
	if err != nil {
		return err.Error()
	}
	page, ok := s.pages[to.Path]
	switch {
	case to.Host != "":
		return ""
	case !strings.HasPrefix(to.Path, Path+docsPath):
		if got := s.get(http.MethodGet, to.Path, ""); got.Code != http.StatusOK {
			return fmt.Sprintf("%s: %d", to.Path, got.Code)
		}
	case !ok:
		return "there is no page " + to.Path
	case to.Fragment != "" && !strings.Contains(page, ` id="`+to.Fragment+`"`):
		return "there is no heading #" + to.Fragment + " on " + to.Path
	}
	return ""
}

func TestEveryLinkOfTheDocsLeadsSomewhere(t *testing.T) {
	s := walk(t)
	links, anchors := 0, 0
	for at, page := range s.pages {
		for _, link := range regexp.MustCompile(` (?:href|src)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
			links++
			if strings.Contains(link[1], "#") {
				anchors++
			}
			if fault := s.fault(at, link[1]); fault != "" {
				t.Errorf("%s: %s: %s", at, link[1], fault)
			}
		}
		ids := map[string]bool{}
		for _, id := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(page, -1) {
			if ids[id[1]] {
				t.Errorf("%s has two #%s", at, id[1])
			}
			ids[id[1]] = true
		}
	}
	if links < 1000 || anchors < 300 {
		t.Errorf("only %d links, %d with anchors, were found", links, anchors)
	}
}

// Problems, errors, alerts and flags name pages as they are in the repository.
func TestWhatTheProductNamesIsServed(t *testing.T) {
	s, names := walk(t), 0
	for _, directory := range []string{"cmd", "pkg", "deploy", "docs/reference"} {
		err := filepath.WalkDir(filepath.Join("../../..", directory), func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasSuffix(file, "_test.go") {
				return err
			}
			content, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			for _, name := range regexp.MustCompile(`\bdocs/([\w/-]+)\.md(#[\w-]+)?`).FindAllStringSubmatch(string(content), -1) {
				names++
				name[1] = strings.TrimPrefix("/"+name[1], "/README") // docs/README.md is the start
				if fault := s.fault(Path+docsPath, strings.TrimPrefix(name[1], "/")+name[2]); fault != "" {
					t.Errorf("%s: %s: %s", file, name[0], fault)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if names < 100 {
		t.Errorf("only %d names were found", names)
	}
}

// What the policy would refuse must not be on a page: it would fail only in browsers.
func TestDocsLoadNothingFromElsewhere(t *testing.T) {
	s := walk(t)
	tag := regexp.MustCompile(`<[a-zA-Z][^>]*>`)
	loads := regexp.MustCompile(`(?i)^<(?:script|style|iframe|object|embed|form)\b| (?:style|on[a-z]+)=|(?:src|<link [^>]*href)="(?:[a-z]+:|//)`)
	for at, page := range s.pages {
		if path.Ext(at) != "" {
			continue
		}
		for _, found := range tag.FindAllString(page, -1) {
			if loads.MatchString(found) {
				t.Errorf("%s: %s", at, found)
			}
		}
		if strings.Contains(page, "raw HTML omitted") {
			t.Errorf("%s: its source has HTML within a line, which readers do not see", at)
		}
	}
	d := newDocs(regent.Docs)
	for p := range d.names {
		if path.Ext(p) != ".md" {
			continue
		}
		each(d.markdown.Parser().Parse(text.NewReader(d.read(p))), func(n ast.Node) {
			// type 2 is a comment
			if block, ok := n.(*ast.HTMLBlock); ok && block.HTMLBlockType != ast.HTMLBlockType2 {
				t.Errorf("%s has a block of HTML, which readers do not see: %s", p, block.Lines().Value(d.read(p)))
			}
		})
	}
}

func TestDocsAreServedAsThePageIs(t *testing.T) {
	s := walk(t)
	for at, contentType := range map[string]string{
		"/ui/docs/": "text/html", "/ui/docs/OPERATIONS": "text/html", "/ui/docs/reference/alerts": "text/html", "/ui/docs/REGENT": "text/html", "/ui/docs/CHANGELOG": "text/html",
		"/ui/docs/pictures/term.svg": "image/svg+xml",
	} {
		got := s.get(http.MethodGet, at, "")
		header := got.Header()
		if got.Code != http.StatusOK || !strings.HasPrefix(header.Get("Content-Type"), contentType) || header.Get("Content-Security-Policy") != policy || header.Get("Cache-Control") != "no-cache" {
			t.Errorf("%s: %d, %v", at, got.Code, header)
		}
		if again := s.get(http.MethodGet, at, header.Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() != 0 {
			t.Errorf("%s, when the browser has it: %d, want 304", at, again.Code)
		}
		if head := s.get(http.MethodHead, at, ""); head.Code != http.StatusOK || head.Body.Len() != 0 || head.Header().Get("ETag") != header.Get("ETag") {
			t.Errorf("HEAD %s: %d with %d bytes", at, head.Code, head.Body.Len())
		}
		if post := s.get(http.MethodPost, at, ""); post.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d", at, post.Code)
		}
	}
	for at, want := range map[string]string{
		"/ui/docs": "/ui/docs/", "/ui/docs/README.md": "/ui/docs/", "/ui/docs/README": "/ui/docs/", "/ui/docs/OPERATIONS.md": "/ui/docs/OPERATIONS", "/ui/docs/reference/alerts.md": "/ui/docs/reference/alerts",
	} {
		got := s.get(http.MethodGet, at, "")
		base, _ := url.Parse("/shards/eu1" + at) // a front has it there
		if to, err := base.Parse(got.Header().Get("Location")); got.Code != http.StatusMovedPermanently || err != nil || to.Path != "/shards/eu1"+want {
			t.Errorf("%s: %d, %v leads to %s", at, got.Code, got.Header(), to)
		}
	}
}

func TestAPageThatIsNotThereNamesThoseThatAre(t *testing.T) {
	s := walk(t)
	for _, at := range []string{"/ui/docs/NOTHING", "/ui/docs/reference/", "/ui/docs/reference/<b>", "/ui/docs/../go.mod", "/ui/docs/OPERATIONS/", "/ui/docs/docs.go", "/ui/docs/NOTHING.md"} {
		got := s.get(http.MethodGet, strings.ReplaceAll(at, "<b>", "%3Cb%3E"), "")
		body := got.Body.String()
		if got.Code != http.StatusNotFound || got.Header().Get("Content-Security-Policy") != policy || strings.Contains(body, "<b>") {
			t.Errorf("%s: %d, %v", at, got.Code, got.Header())
		}
		for _, page := range []string{"OPERATIONS", "reference/alerts", "CHANGELOG", "REGENT"} {
			link := between(strings.TrimPrefix(at, "/ui/docs/"), page)
			if !strings.Contains(body, `href="`+link+`"`) {
				t.Errorf("%s has no link to %s", at, link)
			}
		}
	}
}

// Every page can be reached from every page, in the groups of the start page.
func TestEveryPageNamesAll(t *testing.T) {
	d := newDocs(regent.Docs)
	groups := d.groups()
	var titles []string
	named := map[string]bool{}
	for _, g := range groups {
		titles = append(titles, g.Title)
		for _, p := range g.Pages {
			if named[p.Name] = true; p.Title == "" {
				t.Errorf("%q has no title", p.Name)
			}
		}
	}
	if want := []string{"Regent", "Use the election in your program", "Write a controller, or offer an API", "Run a shard", "Change Regent", "Reference"}; !slices.Equal(titles, want) {
		t.Errorf("the groups are %q, want %q", titles, want)
	}
	for p, name := range d.names {
		if path.Ext(p) == ".md" && !named[name] {
			t.Errorf("%s is in no group", p)
		}
	}
}

func TestHeadingsHaveTheAnchorsOfGitHub(t *testing.T) {
	source := "# One\n\n## How `make test` runs\n\n## Adoption, beside Kubernetes (`BenchmarkAdoption`)\n\n## kcp's [own](x.md) page\n\n## a - b & c_d\n\n## Ünder 2.0\n\n## Renew\n\n## Renew\n\n### Renew\n"
	d := newDocs(fstest.MapFS{"docs/README.md": {Data: []byte("# Start\n")}, "README.md": {Data: []byte("# Regent\n")}, "docs/A.md": {Data: []byte(source)}})
	var got []string
	for _, id := range regexp.MustCompile(`<h\d id="([^"]*)"`).FindAllStringSubmatch(string(d.files["A"]().content), -1) {
		got = append(got, id[1])
	}
	if want := []string{"one", "how-make-test-runs", "adoption-beside-kubernetes-benchmarkadoption", "kcps-own-page", "a---b--c_d", "ünder-20", "renew", "renew-1", "renew-2"}; !slices.Equal(got, want) {
		t.Errorf("the anchors are %q, want %q", got, want)
	}
}

func TestLinksOfTheRepositoryBecomeThoseOfTheServer(t *testing.T) {
	d := newDocs(fstest.MapFS{
		"README.md": {Data: []byte("# Regent\n\n[A](docs/A.md#x) ![p](docs/pictures/p.svg)\n")}, "CHANGELOG.md": {Data: []byte("# Changes\n")}, "docs/pictures/p.svg": {Data: []byte("<svg/>")},
		"docs/README.md": {Data: []byte("# Start\n\n[A](A.md) [R](reference/r.md)\n")}, "docs/reference/r.md": {Data: []byte("# R\n\n[A](../A.md#x) [start](../README.md) [s](s.md)\n")},
		"docs/A.md": {Data: []byte("# A\n\n[home](README.md) [R](../README.md) [C](../CHANGELOG.md) [r](reference/r.md#y) [x](#x) [e](https://example.org/x.md) [j](javascript:alert(1))\n\n" +
			"[the *best* one](../examples/a/main.go), [examples/a](../examples/a/main.go#l1) <b onclick=x>b</b>\n\n<script>x</script>\n\n|a|\n|-:|\n|1<br>2<b>|\n\n```mermaid\na-->b\n```\n")},
	})
	for name, want := range map[string][]string{
		"REGENT":      {`<a href="A#x">A</a> <img src="pictures/p.svg" alt="p">`},
		"":            {`<a href="A">A</a> <a href="reference/r">R</a>`, `<link rel="stylesheet" href="../docs.css">`},
		"reference/r": {`<a href="../A#x">A</a> <a href="../">start</a> s (docs/reference/s.md)`, `<link rel="stylesheet" href="../../docs.css">`, `<a href="../">Docs</a>`},
		"A": {`<a href="./">home</a> <a href="REGENT">R</a> <a href="CHANGELOG">C</a> <a href="reference/r#y">r</a> <a href="#x">x</a> <a href="https://example.org/x.md">e</a> j (docs/javascript:alert(1))`,
			`<p>the <em>best</em> one (examples/a/main.go), examples/a <`, `<div class="scroller"><table>`, `<th align="right">a</th>`, ">1<br>2<!--", `<code class="language-mermaid">a--&gt;b`},
	} {
		page := string(d.files[name]().content)
		for _, part := range want {
			if !strings.Contains(page, part) {
				t.Errorf("%q has no %s:\n%s", name, part, page)
			}
		}
		if strings.Contains(page, "<script") || strings.Contains(page, "onclick") {
			t.Errorf("%q has HTML of its source:\n%s", name, page)
		}
	}
}

func TestDocsCanBeRead(t *testing.T) {
	css, err := assets.ReadFile("assets/docs.css")
	if err != nil {
		t.Fatal(err)
	}
	values := colours(t, string(css))
	for _, ground := range []string{"ground", "card"} {
		for _, text := range []string{"ink", "dim", "lead"} {
			for n, scheme := range []string{"light", "dark"} {
				a, b := values[ground][n], values[text][n]
				if a == 0 && b == 0 {
					t.Fatalf("docs.css has no --%s or no --%s", ground, text)
				}
				if ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05); ratio < least {
					t.Errorf("%s on %s, %s: contrast %.2f, want %.1f", text, ground, scheme, ratio, least)
				}
			}
		}
	}
	if len(values) != 6 { // and --line, which is no ground of texts
		t.Errorf("a colour was added: say here what it is for")
	}
}
