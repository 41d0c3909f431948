// Package conventions holds what must be true of the source as a whole: who may import whom, and what every package
// says of itself.
package conventions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/regent-project/regent/"

// pkg is what `go list` says of a package.
type pkg struct {
	Dir, ImportPath, Doc string
	GoFiles, Imports     []string
	Deps                 []string
	TestGoFiles          []string
	XTestGoFiles         []string
}

func (p pkg) short() string { return short(p.ImportPath) }

// short returns the path in the repository of a package of this repository: "." is the root.
func short(importPath string) string {
	if importPath+"/" == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module)
}

// list asks `go list` once for all tests, in the root and in each module below pkg: it takes seconds.
var list = sync.OnceValues(func() (all []pkg, err error) {
	seen := map[string]bool{}
	for _, m := range slices.Concat([]string{"../.."}, libraries()) {
		list := exec.Command("go", "list", "-json=Dir,ImportPath,Doc,GoFiles,Imports,Deps,TestGoFiles,XTestGoFiles", "./...")
		list.Dir, list.Stderr = m, os.Stderr
		out, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("go list in %s: %w", m, err)
		}
		for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
			var p pkg
			if err := d.Decode(&p); err != nil {
				return nil, err
			}
			if !seen[p.ImportPath] {
				seen[p.ImportPath] = true
				all = append(all, p)
			}
		}
	}
	return all, nil
})

func packages(t *testing.T) []pkg {
	t.Helper()
	all, err := list()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("go list found only %d packages", len(all))
	}
	return all
}

// layers is the import table: the packages of this module that each may import. A pattern's
// first match counts.
var layers = []struct {
	importer string
	may      []string
}{
	{"pkg/election/fence", nil},
	{"pkg/election/electiontest", []string{"pkg/election", "pkg/election/fence"}},
	{"pkg/election/detect", []string{"pkg/election", "pkg/election/internal/host", "pkg/election/internal/series"}},
	{"pkg/election/leader", []string{"pkg/election", "pkg/election/detect", "pkg/election/fence", "pkg/election/internal/host", "pkg/election/ranges"}},
	{"pkg/election/mcr", []string{"pkg/election", "pkg/election/fence", "pkg/election/leader", "pkg/election/ranges"}},
	{"pkg/election/clientgo", []string{"pkg/election", "pkg/election/fence", "pkg/election/leader"}},
	{"pkg/election/internal/series/seriestest", []string{"pkg/election/internal/series"}},
	{"pkg/election/internal/*", nil},
	{"pkg/election/etcdfence", []string{"pkg/election/fence"}},
	{"pkg/election/join", []string{"pkg/election", "pkg/election/internal/undone"}},
	{"pkg/election/ranges", []string{"pkg/election", "pkg/election/internal/lease", "pkg/election/internal/share"}},
	{"pkg/election/perterm", []string{"pkg/election", "pkg/election/fence", "pkg/election/internal/undone", "pkg/election/join", "pkg/election/ranges"}},
	{"pkg/election/control", nil},
	{"pkg/election/control/loop", []string{"pkg/election/control"}},
	{"pkg/election/control/supervisor", []string{"pkg/election", "pkg/election/control", "pkg/election/internal/series", "pkg/election/ranges"}},
	{"pkg/election", []string{"pkg/election/fence", "pkg/election/internal/lease", "pkg/election/internal/series"}},
	{"pkg/election/metrics", []string{"pkg/election/internal/series"}},

	{"pkg/regenttest", nil},

	{"pkg/clusters", []string{"pkg/election/ranges"}},
	{"pkg/server/premise", nil},
	{"pkg/server/routing", []string{"pkg/clusters", "pkg/server/premise"}},
	{"pkg/server/storage", []string{"pkg/election/etcdfence", "pkg/election/fence", "pkg/clusters", "pkg/server/bundle", "pkg/server/premise"}},
	{"pkg/server/apis", []string{"pkg/clusters", "pkg/server/storage", "pkg/server/apis/*"}},
	{"pkg/server/custom", []string{"pkg/clusters", "pkg/controllers", "pkg/server/premise", "pkg/server/storage", "pkg/server/webhooks", "pkg/server/apis/kcpapis"}},
	{"pkg/server/apis/resource", []string{"pkg/election/fence", "pkg/clusters", "pkg/server/storage"}},
	{"pkg/server/apis/openapi", nil},
	{"pkg/server/apis/rbac", []string{"pkg/clusters", "pkg/server/access", "pkg/server/apis/resource"}},
	{"pkg/server/access", []string{"pkg/clusters", "pkg/controllers"}},
	{"pkg/server/apis/*", []string{"pkg/election/fence", "pkg/clusters", "pkg/server/apis/*", "pkg/server/premise", "pkg/server/serviceaccounts"}},
	{"pkg/server/serviceaccounts", []string{"pkg/clusters", "pkg/server/fetch", "pkg/server/status"}},
	{"pkg/server/exports", []string{"pkg/clusters", "pkg/controllers", "pkg/server/apis/admission", "pkg/server/fetch", "pkg/server/status"}},
	{"pkg/server/etcd", []string{"pkg/server/pki"}},
	{"pkg/server/pki", []string{"pkg/clusters"}},
	{"pkg/server/loopback", []string{"pkg/controllers", "pkg/clusters"}},
	{"pkg/server/installation", []string{"pkg/controllers", "pkg/clusters", "pkg/server/bundle", "pkg/server/pki", "pkg/server/shards", "pkg/server/fetch"}},
	{"pkg/server/front", []string{"pkg/controllers", "pkg/clusters", "pkg/server/build", "pkg/server/connections", "pkg/server/pki", "pkg/server/reload", "pkg/server/routing", "pkg/server/shards", "pkg/server/fetch"}},
	{"pkg/server/connections", nil},
	{"pkg/server/encryption", []string{"pkg/server/reload"}},
	{"pkg/server/reload", nil},
	{"pkg/server/webhooks", nil},
	{"pkg/server/authorization", []string{"pkg/clusters", "pkg/server/reload", "pkg/server/webhooks"}},
	{"pkg/server/authentication/issuertest", nil},
	{"pkg/server/authentication", []string{"pkg/server/reload", "pkg/server/webhooks", "pkg/server/fetch"}},
	{"pkg/server/fairness", nil},
	{"pkg/server/fetch", nil},
	{"pkg/server/status", nil},
	{"pkg/server/status/statustest", []string{"pkg/server/status"}},
	{"pkg/server/build", nil},
	{".", nil},
	{"pkg/server/ui", []string{"pkg/server/build"}},
	{"pkg/server/history", []string{"pkg/clusters", "pkg/election", "pkg/server/status"}},
	{"pkg/server/survey", []string{"pkg/server/pki", "pkg/server/shards", "pkg/server/status", "pkg/server/fetch"}},
	{"pkg/server/tracing", nil},
	{"pkg/server/tracing/tracingtest", nil},
	{"pkg/server/shards", []string{"pkg/controllers", "pkg/clusters", "pkg/server/pki", "pkg/server/fetch"}},
	{"pkg/server/terms", []string{"pkg/clusters", "pkg/controllers", "pkg/election", "pkg/election/ranges", "pkg/election/control", "pkg/election/control/supervisor", "pkg/election/fence", "pkg/server/loopback"}},

	{"pkg/controllers", []string{"pkg/election/ranges", "pkg/election/control", "pkg/election/fence", "pkg/clusters"}},
	{"pkg/controllers/loop", []string{"pkg/election/control/loop", "pkg/clusters"}},
	{"pkg/controllers/controllertest", []string{"pkg/controllers", "pkg/controllers/*", "pkg/election/fence", "pkg/clusters"}},
	{"pkg/controllers/content", []string{"pkg/controllers", "pkg/clusters"}},
	{"pkg/controllers/catalog", []string{"pkg/controllers", "pkg/controllers/*"}},
	{"pkg/controllers/namespace", []string{"pkg/controllers", "pkg/controllers/loop", "pkg/controllers/bootstrap", "pkg/controllers/content", "pkg/clusters"}},
	{"pkg/controllers/aggregation", []string{"pkg/controllers", "pkg/controllers/loop", "pkg/controllers/bootstrap", "pkg/clusters"}},
	{"pkg/controllers/garbagecollector", []string{"pkg/controllers", "pkg/controllers/loop", "pkg/controllers/bootstrap", "pkg/controllers/content", "pkg/clusters"}},
	{"pkg/controllers/logicalcluster", []string{"pkg/controllers", "pkg/controllers/loop", "pkg/controllers/bootstrap", "pkg/controllers/content", "pkg/clusters"}},
	{"pkg/controllers/definition", []string{"pkg/controllers", "pkg/controllers/loop", "pkg/controllers/bootstrap", "pkg/controllers/content", "pkg/clusters"}},
	{"pkg/controllers/*", []string{"pkg/controllers", "pkg/controllers/loop", "pkg/controllers/bootstrap", "pkg/clusters"}},

	{"pkg/server/format", nil},
	{"pkg/server/etcdcheck", []string{"pkg/server/format", "pkg/server/pki"}},
	{"pkg/server/keys", []string{"pkg/server/etcdcheck", "pkg/server/pki", "pkg/server/reload"}},
	{"pkg/server/identity", []string{"pkg/clusters", "pkg/controllers", "pkg/server/access", "pkg/server/apis", "pkg/server/authentication", "pkg/server/authorization", "pkg/server/pki", "pkg/server/routing", "pkg/server/serviceaccounts", "pkg/server/shards", "pkg/server/status"}},
	{"pkg/server/moves", []string{"pkg/clusters", "pkg/controllers", "pkg/server/bundle", "pkg/server/routing", "pkg/server/storage"}},
	{"pkg/server/edge", []string{"pkg/clusters", "pkg/election/etcdfence", "pkg/election/fence", "pkg/server/access", "pkg/server/apis", "pkg/server/bundle", "pkg/server/connections", "pkg/server/custom", "pkg/server/fairness", "pkg/server/identity", "pkg/server/premise", "pkg/server/routing", "pkg/server/storage"}},
	{"pkg/server/endpoints", []string{"pkg/clusters", "pkg/controllers", "pkg/election", "pkg/election/ranges", "pkg/election/control/supervisor", "pkg/election/fence", "pkg/server/backup", "pkg/server/build", "pkg/server/bundle", "pkg/server/edge", "pkg/server/exports", "pkg/server/fairness", "pkg/server/format", "pkg/server/history", "pkg/server/identity", "pkg/server/moves", "pkg/server/routing", "pkg/server/serviceaccounts", "pkg/server/shards", "pkg/server/status", "pkg/server/storage", "pkg/server/survey", "pkg/server/terms"}},
	{"pkg/server", []string{"pkg/election", "pkg/election/ranges", "pkg/election/detect", "pkg/election/etcdfence", "pkg/election/control/supervisor", "pkg/election/fence", "pkg/election/metrics", "pkg/controllers", "pkg/controllers/workspace", "pkg/clusters", "pkg/server/*"}},
	{"pkg/server/options", []string{"pkg/clusters", "pkg/controllers", "pkg/election", "pkg/election/detect", "pkg/election/ranges", "pkg/server", "pkg/server/authentication", "pkg/server/bundle", "pkg/server/edge", "pkg/server/etcd", "pkg/server/identity", "pkg/server/pki", "pkg/server/webhooks"}},
	{"cmd/server/face/page", []string{".", "cmd/server/face/ask", "pkg/server/routing", "pkg/server/status", "pkg/server/ui", "pkg/server/fetch"}},
	{"cmd/server/face/ask", []string{"pkg/server/routing", "pkg/server/status", "pkg/server/fetch"}},
	{"cmd/server/face/view", []string{"cmd/server/backups", "cmd/server/bundles", "cmd/server/face/ask", "cmd/server/workspaces", "pkg/server/status"}},
	{"cmd/server/workspaces", []string{"pkg/clusters"}},
	{"cmd/server/bundles", []string{"cmd/server/workspaces", "pkg/clusters", "pkg/server/bundle"}},
	{"cmd/server/backups/s3", nil},
	{"cmd/server/backups", []string{"cmd/server/backups/s3", "cmd/server/bundles", "pkg/server/backup", "pkg/server/build", "pkg/server/bundle", "pkg/server/status", "pkg/server/storage"}},
	{"pkg/server/backup", []string{"pkg/server/bundle"}},
	{"pkg/server/bundle", nil},
	{"cmd/regent", []string{"cmd/server/command"}},
	{"cmd/server", []string{"cmd/server/command"}},
	{"cmd/server/command", []string{".", "cmd/server/*", "pkg/controllers/catalog", "pkg/server", "pkg/server/build", "pkg/server/bundle", "pkg/server/etcd", "pkg/server/format", "pkg/server/front", "pkg/server/installation", "pkg/server/options", "pkg/server/pki", "pkg/server/status"}},
	{"cmd/server/*", []string{"cmd/server/*", "pkg/election", "pkg/server/etcd", "pkg/server/installation", "pkg/server/pki", "pkg/clusters", "pkg/server/options", "pkg/server/fetch", "pkg/server/status"}},
	{"examples/manager/*", []string{"pkg/election/leader", "pkg/election/perterm"}},
	{"examples/*", []string{"pkg/election/fence"}},
	{"test/*", []string{"pkg/*", "test/*"}},
}

// onlyForTests are packages that no product code may import.
var onlyForTests = []string{"pkg/regenttest", "pkg/election/electiontest", "pkg/controllers/controllertest", "pkg/server/authentication/issuertest", "pkg/server/status/statustest",
	"pkg/server/tracing/tracingtest", "pkg/election/internal/programtest", "pkg/election/internal/series/seriestest"}

// upstream are packages of others that nothing here may link in.
var upstream = map[string]string{
	"k8s.io/component-base/metrics/prometheus/clientgo": "registers leader_election_master_status: package election registers its own, and keeps theirs right only for others who link it",
	"k8s.io/kubernetes": "is not a library",
}

func TestImportsFollowTheTable(t *testing.T) {
	for _, p := range packages(t) {
		var may []string
		listed := false
		for _, l := range layers {
			if listed = within(p.short(), []string{l.importer}); listed {
				may = l.may
				break
			}
		}
		if !listed {
			t.Errorf("%s is in no layer: add it to the table", p.short())
		}
		for _, i := range p.Imports {
			ours := strings.HasPrefix(i+"/", module)
			if ours && !within(short(i), may) {
				t.Errorf("%s may not import %s", p.short(), short(i))
			} else if ours && slices.Contains(onlyForTests, short(i)) && !strings.HasSuffix(p.short(), "test") && !strings.HasPrefix(p.short(), "test/") {
				t.Errorf("%s imports %s, which is for tests only", p.short(), short(i))
			}
		}
	}
}

func TestWhatMayNotBeLinkedIsNot(t *testing.T) {
	for _, p := range packages(t) {
		for _, d := range p.Deps {
			for banned, why := range upstream {
				if d == banned || strings.HasPrefix(d, banned+"/") {
					t.Errorf("%s links %s, which %s", p.short(), d, why)
				}
			}
		}
	}
}

// A program that imports the election or the controllers gets no API server with them.
func TestLibrariesLinkNoServer(t *testing.T) {
	programs := []string{"pkg/clusters", "pkg/election", "pkg/election/*", "pkg/controllers", "pkg/controllers/*"}
	for _, p := range packages(t) {
		if !within(p.short(), programs) || p.short() == "pkg/election/etcdfence" { // which is for API servers
			continue
		}
		for _, d := range p.Deps {
			if strings.HasPrefix(d, "k8s.io/apiserver/") || strings.HasPrefix(d, module+"pkg/server") {
				t.Errorf("%s links %s", p.short(), d)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range packages(t) {
		if len(p.GoFiles) == 0 {
			continue // tests only
		}
		if want := "Package " + path.Base(p.ImportPath) + " "; !strings.HasPrefix(p.Doc, want) && !strings.HasPrefix(p.Doc, "Command ") {
			t.Errorf("%s: the package comment must begin with %q, it is %q", p.short(), want, p.Doc)
		}
	}
}

func TestNamesSayWhatThingsAre(t *testing.T) {
	empty := regexp.MustCompile(`(?i)(^|[/_])(util|utils|helper|helpers|common|manager|wrapper|misc|master)s?(_test)?(\.go)?$`)
	for _, p := range packages(t) {
		for _, f := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			if name := p.short() + "/" + f; empty.MatchString(p.short()) || empty.MatchString(name) {
				t.Errorf("%s: name it for what it does", name)
			}
		}
	}
}

// The calls that have no place in the product, with what to use instead.
var banned = map[*regexp.Regexp]string{
	regexp.MustCompile(`klog\.((V\([^)]*\)\.)?(Info|Warning|Error|Fatal|Exit)\w*|Background|TODO)\(`): "klog.FromContext(ctx)",
	regexp.MustCompile(`context\.TODO\(\)`):                                                           "the caller's context",
	regexp.MustCompile(`\btime\.Sleep\(`):                                                             "a timer beside ctx.Done()",
	regexp.MustCompile(`\.Authorize\(clusters\.With\(`):                                               "access.Elsewhere, which knows of impersonation",
	regexp.MustCompile(`leaderelection\.RunOr`):                                                       "package election, which alone enters it",
	regexp.MustCompile(`http\.DefaultTransport`):                                                      "a transport of its own, that ends with its owner",
	regexp.MustCompile(`make\(chan watch\.Event\)`):                                                   "a few events ahead: upstream flushes after each event that has none behind it",
}

func TestProductCodeDoesNotCall(t *testing.T) {
	for _, p := range packages(t) {
		if strings.HasPrefix(p.short(), "test/") || slices.Contains(onlyForTests, p.short()) {
			continue
		}
		for _, name := range p.GoFiles {
			for line, text := range code(t, filepath.Join(p.Dir, name)) {
				for pattern, instead := range banned {
					if p.short() == "pkg/election" && strings.Contains(text, "leaderelection.RunOrDie(") {
						continue
					}
					if pattern.MatchString(text) {
						t.Errorf("%s/%s:%d: %s: use %s", p.short(), name, line, strings.TrimSpace(text), instead)
					}
				}
			}
		}
	}
}

// within reports whether name matches one of the patterns: a path, or a path and /* for all below it.
func within(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if above, all := strings.CutSuffix(p, "/*"); all {
			return strings.HasPrefix(name, above+"/")
		}
		return name == p
	})
}

// code returns a file's lines by number, comments left out.
func code(t *testing.T, file string) map[int]string {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	source := readFile(t, file)
	for _, group := range parsed.Comments {
		from, to := set.Position(group.Pos()).Offset, set.Position(group.End()).Offset
		for i := from; i < to; i++ {
			if source[i] != '\n' {
				source[i] = ' '
			}
		}
	}
	lines := map[int]string{}
	for i, l := range strings.Split(string(source), "\n") {
		lines[i+1] = l
	}
	return lines
}
