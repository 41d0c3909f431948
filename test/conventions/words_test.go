package conventions

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// participles are no names: a function is a verb, a type is a noun, and a result is what it is of. `asked` may be what
// was asked for, who was asked, or whether anybody was.
var participles = strings.Fields(`answered asked awaited began begun bound brought caught chosen counted done drawn felt forgotten found given gone
	got grown heard held hidden kept known lasted led left lent looked lost made meant met named said seen sent shown sought taken told wished woken written`)

// upstreams are methods that interfaces of others have.
var upstreams = []string{"Done"}

var (
	// he matches requests, users and clients that are called so.
	he = regexp.MustCompile(`\b([Hh]e|[Hh]is|[Hh]im|[Hh]imself|[Ss]he|[Hh]ers?|[Hh]erself)\b`)
	// heInAName matches the same in the name of a test.
	heInAName = regexp.MustCompile(`(He|His|Him|Himself)([A-Z]|$)`)
	// who matches a sentence that begins with Who.
	who = regexp.MustCompile(`(?:^|[.!?:]\s+|\n\s*)(Who\s[^.?!]*(?:[.?!]|$))`)
)

// wrongSentences returns what must not be in a comment or a string.
func wrongSentences(text string) (wrong []string) {
	for _, s := range who.FindAllStringSubmatch(text, -1) {
		if !strings.HasSuffix(s[1], "?") {
			wrong = append(wrong, fmt.Sprintf("%.50q: say of whom it is first: a sentence that begins with Who is a question", s[1]))
		}
	}
	if s := he.FindString(text); s != "" && strings.ContainsAny(strings.TrimSpace(text), " \n") {
		wrong = append(wrong, fmt.Sprintf("%q in %.50q: requests, users and clients are it, or they", s, text))
	}
	return wrong
}

// unspoken are phrases that nobody says whose language is English, and what is said instead.
var unspoken = map[string]*regexp.Regexp{
	"has led for 31s":                   regexp.MustCompile(`\b(leads|is known to lead) since\b|\bsince (%s|\S+) ago\b`),
	"continues, keeps doing, or so far": regexp.MustCompile(`\bgo(es)? on\b`),
	"fix":                               regexp.MustCompile(`\b[Mm]end(s|ed)?\b`),
	"again, or re- before the verb":     regexp.MustCompile(`\banew\b`),
	"check":                             regexp.MustCompile(`\b[Ll]ook after\b`),
	"is normal":                         regexp.MustCompile(`as it should be`),
	"the previous leader":               regexp.MustCompile(`\bthe (leader|one|term|step) before\b`),
	"the network between":               regexp.MustCompile(`\bthe way (to|between)\b`),
}

// forOperators are the packages whose strings operators read in a terminal or in a browser.
var forOperators = []string{"cmd/server/", "pkg/server/status/", "pkg/server/options/", "pkg/server/installation/"}

// What operators read is English that a native speaker would write.
func TestOperatorsReadEnglish(t *testing.T) {
	for _, directory := range forOperators {
		err := filepath.WalkDir("../../"+directory, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			set := token.NewFileSet()
			parsed, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				literal, ok := n.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					return true
				}
				for instead, phrase := range unspoken {
					if found := phrase.FindString(literal.Value); found != "" {
						t.Errorf("%s: %q: say %s", set.Position(n.Pos()), found, instead)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// wrongName returns what is wrong with the name of a function, a type or a result.
func wrongName(name string) (wrong []string) {
	if slices.Contains(participles, strings.ToLower(name)) && !slices.Contains(upstreams, name) {
		wrong = append(wrong, name+": a participle is no name: functions are verbs, types are nouns")
	}
	if heInAName.MatchString(name) {
		wrong = append(wrong, name+": requests, users and clients are it, or they")
	}
	return wrong
}

// wrongWords calls report for all that is wrong with the words of a file.
func wrongWords(file *ast.File, report func(at token.Pos, wrong string)) {
	add := func(at token.Pos, wrong []string) {
		for _, w := range wrong {
			report(at, w)
		}
	}
	for _, group := range file.Comments {
		add(group.Pos(), wrongSentences(group.Text()))
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				add(literal.Pos(), wrongSentences(text))
			}
		}
		return true
	})
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(d.Pos(), wrongName(d.Name.Name))
			if d.Type.Results == nil {
				continue
			}
			for _, r := range d.Type.Results.List {
				for _, name := range r.Names {
					add(name.Pos(), wrongName(name.Name))
				}
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if named, ok := s.(*ast.TypeSpec); ok {
					add(named.Pos(), wrongName(named.Name.Name))
				}
			}
		}
	}
}

// A name or a sentence says at once what it is of, also to somebody who reads it for the first time.
func TestWordsSayWhatTheyAreOf(t *testing.T) {
	files, wrong := 0, map[string]bool{}
	err := filepath.WalkDir("../..", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", ".regent", "testdata"}, entry.Name()):
			return filepath.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasPrefix(entry.Name(), "zz_generated") || entry.Name() == "words_test.go":
			return nil
		}
		files++
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		short := filepath.ToSlash(strings.TrimPrefix(name, "../../"))
		wrongWords(parsed, func(at token.Pos, text string) {
			if wrong[short] = true; !slices.Contains(unmended, short) {
				t.Errorf("%s:%d: %s", short, set.Position(at).Line, text)
			}
		})
		return nil
	})
	if err != nil || files < 1000 {
		t.Fatalf("%d files: %v", files, err)
	}
	for _, name := range unmended {
		if !wrong[name] {
			t.Errorf("%s is mended, or gone: take it off the list", name)
		}
	}
}

func TestWrongWordsAreFound(t *testing.T) {
	for source, want := range map[string]int{
		"// Who asks waits.\nfunc f() {}":                     1,
		"// It is so. Who\n// asks, waits.\nfunc f() {}":      1,
		"// Who asks? It is not known who asks.\nfunc f() {}": 0,
		"// Whoever asks waits.\nfunc f() {}":                 0,
		"var s = \"Who leads is told\"":                       1,
		"var s = \"Who leads?\"":                              0,
		"// A client must not lose his place.\nfunc f() {}":   1,
		"var s = \"the user whom he knows\"":                  1,
		// a fragment, such as one of hexadecimal digits
		"var s = \"he\"":  0,
		"func asked() {}": 1,
		"func (t T) Told() (held, shown bool) { return }":       3,
		"type known struct{}":                                   1,
		"func (t T) Done() (closed bool) { return }":            0,
		"func f() { asked := 1; _ = asked }":                    0,
		"func TestNobodyIsToldBeforeHeAsks() {}":                1,
		"func TestTheHistoryOfAHeader() (err error) { return }": 0,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n\n"+source, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		var wrong []string
		wrongWords(file, func(_ token.Pos, text string) { wrong = append(wrong, text) })
		if len(wrong) != want {
			t.Errorf("%s: %q, want %d", source, wrong, want)
		}
	}
}

// unmended are files whose words are still to be mended. It only ever gets shorter.
var unmended = []string{}
