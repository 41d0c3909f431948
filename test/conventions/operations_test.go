package conventions

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/regent-project/regent/pkg/server/authentication"
	"github.com/regent-project/regent/pkg/server/authorization"
	"github.com/regent-project/regent/pkg/server/options"
)

// startFlags are those of `start`. They can be made only once.
var startFlags = sync.OnceValue(func() cliflag.NamedFlagSets { return options.New().Flags() })

// productFiles returns the Go files below a directory that are no tests.
func productFiles(t *testing.T, directory string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(directory, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files below %s: %v", len(files), directory, err)
	}
	return files
}

// What is documented of metrics and Events exists: each name is in the code.
func TestDocumentedMetricsAndEventsExist(t *testing.T) {
	var code strings.Builder
	for _, file := range productFiles(t, "../../pkg") {
		code.Write(readFile(t, file))
	}
	operations := string(readFile(t, "../../docs/OPERATIONS.md")) + string(readFile(t, "../../docs/SHARDS.md")) + string(readFile(t, "../../docs/CERTIFICATES.md"))
	metrics := regexp.MustCompile("`((?:regent|leader)_[a-z_]+)").FindAllStringSubmatch(operations, -1)
	events := regexp.MustCompile("(?m)^\\| `([A-Z][A-Za-z]+)`").FindAllStringSubmatch(operations, -1)
	if len(metrics) < 10 || len(events) < 5 {
		t.Errorf("only %d metrics and %d Events", len(metrics), len(events))
	}
	for _, name := range append(metrics, events...) {
		if !strings.Contains(code.String(), `"`+name[1]+`"`) {
			t.Errorf("%s is documented, and not in the code", name[1])
		}
	}
	for _, name := range regexp.MustCompile(`Name:\s+"(regent_[a-z_]+)"`).FindAllStringSubmatch(code.String(), -1) {
		if !strings.Contains(operations, name[1]) {
			t.Errorf("%s is not documented", name[1])
		}
	}
}

// The files for --authentication-config and --authorization-config that the docs show are read as they stand.
func TestTheDocumentedFilesOfAccessAreSound(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	parts, err := filepath.Glob("../../docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "policy.kubeconfig")
	write := func(name, content string) string {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	write(kubeconfig, "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]}")
	found := map[string]bool{}
	for _, page := range append(pages, parts...) {
		for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(readFile(t, page)), -1) {
			file := write(filepath.Join(t.TempDir(), "file.yaml"), strings.ReplaceAll(block[1], "/etc/regent/policy.kubeconfig", kubeconfig))
			switch {
			case strings.Contains(block[1], "kind: AuthenticationConfiguration\n"):
				_, err = authentication.New(authentication.Config{File: file})
			case strings.Contains(block[1], "kind: AuthorizationConfiguration\n"):
				_, err = authorization.New(authorization.Config{File: file})
			default:
				continue
			}
			found[block[1]] = true
			if err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
	if len(found) < 2 {
		t.Errorf("only %d files in the docs", len(found))
	}
}

func TestEveryLimitIsDocumented(t *testing.T) {
	operations := string(readFile(t, "../../docs/OPERATIONS.md"))
	flags := startFlags()
	var names []string
	flags.FlagSet("limits").VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if len(names) < 6 {
		t.Errorf("only the limits %q", names)
	}
	for _, name := range append(names, "shutdown-delay-duration", "strict-transport-security-directives") {
		if !strings.Contains(operations, "`--"+name) {
			t.Errorf("--%s is not in docs/OPERATIONS.md", name)
		}
	}
}

// Each line of the table of failures in docs/SHARDS.md names the scenarios that run it, and they exist.
func TestEachLineOfTheTableOfFailuresIsHeldByATest(t *testing.T) {
	var tests strings.Builder
	for _, pattern := range []string{"../e2e/*_test.go", "../../pkg/server/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			tests.Write(readFile(t, file))
		}
	}
	_, table, found := strings.Cut(string(readFile(t, "../../docs/SHARDS.md")), "| down | keeps working | waits | held by |\n|---|---|---|---|\n")
	table, _, ended := strings.Cut(table, "\n\n")
	lines := strings.Split(table, "\n")
	if !found || !ended || len(lines) < 7 {
		t.Fatalf("the table has %d lines", len(lines))
	}
	for _, line := range lines {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 4 {
			t.Errorf("%q has %d cells", line, len(cells))
			continue
		}
		for name := range strings.SplitSeq(cells[3], ", ") {
			if !strings.Contains(tests.String(), "func Test"+name) {
				t.Errorf("%s: there is no test %s", cells[0], name)
			}
		}
	}
}
