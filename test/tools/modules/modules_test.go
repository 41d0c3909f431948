package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

const version = "v0.3.0"

// files are a repository of a server, two libraries of which one requires the other, and a tool. k8s.io/fake is made by
// serve.
var files = map[string]string{
	"LICENSE":    "do as you like\n",
	".gitignore": "/bin/\n",
	"go.mod": "module example.com/r\n\ngo 1.26.0\n\nrequire (\n\texample.com/r/pkg/a " + replaced + "\n\texample.com/r/pkg/b " + replaced + "\n\tk8s.io/fake v0.37.0\n)\n\n" +
		"replace (\n\texample.com/r/pkg/a => ./pkg/a\n\texample.com/r/pkg/b => ./pkg/b\n)\n",
	"cmd/server/main.go":       "package main\n\nimport (\n\t_ \"example.com/r/pkg/b\"\n\t_ \"k8s.io/fake\"\n)\n\nfunc main() {}\n",
	"pkg/b/go.mod":             "module example.com/r/pkg/b\n\ngo 1.26.0\n\nrequire example.com/r/pkg/a " + replaced + "\n\nreplace example.com/r/pkg/a => ../a\n",
	"pkg/b/b.go":               "package b\n\nimport _ \"example.com/r/pkg/a\"\n",
	"pkg/a/go.mod":             "module example.com/r/pkg/a\n\ngo 1.26.0\n\nrequire k8s.io/fake v0.35.0\n\nrequire golang.org/x/mod v0.41.0\n",
	"pkg/a/a.go":               "package a\n",
	"pkg/a/sub/sub.go":         "package sub\n\nimport _ \"k8s.io/fake\"\n",
	"pkg/a/internal/i/i.go":    "package i\n",
	"pkg/a/a_test.go":          "package a\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) {}\n",
	"pkg/a/a_property_test.go": "package a\n\nimport (\n\t\"testing\"\n\n\t_ \"golang.org/x/mod/module\"\n)\n\nfunc TestProperty(t *testing.T) {}\n",
	"pkg/a/testdata/input.go":  "package input\n",
	"test/tool/go.mod":         "module example.com/r/test/tool\n\ngo 1.26.0\n\nrequire example.com/r/pkg/a " + replaced + "\n\nreplace example.com/r/pkg/a => ../../pkg/a\n",
	"test/tool/tool.go":        "package tool\n\nimport _ \"example.com/r/pkg/a\"\n",
	"bin/left/go.mod":          "module example.com/left\n",
}

// serve makes two versions of a module that stands for those of Kubernetes: the older one needs golang.org/x/mod, which
// the tests of this package have. It returns the checksums of both.
func serve(t *testing.T) (sums string) {
	t.Helper()
	proxy := t.TempDir()
	for version, c := range map[string]struct{ require, code string }{
		"v0.35.0": {"\nrequire golang.org/x/mod v0.41.0\n", "import _ \"golang.org/x/mod/semver\"\n"},
		"v0.37.0": {},
	} {
		m := &mod{directory: t.TempDir()}
		for name, text := range map[string]string{"go.mod": "module k8s.io/fake\n\ngo 1.26.0\n" + c.require, "fake.go": "package fake\n\n" + c.code} {
			if err := os.WriteFile(filepath.Join(m.directory, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		if m.file, err = readModFile(filepath.Join(m.directory, "go.mod")); err != nil {
			t.Fatal(err)
		}
		lines, err := pack(m, version, proxy)
		if err != nil {
			t.Fatal(err)
		}
		sums += strings.Join(lines, "")
	}
	known, err := place{directory: "."}.ask(t.Context(), "go", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		t.Fatal(err)
	}
	cache, others, _ := strings.Cut(known, "\n")
	for name, value := range map[string]string{
		"GOPROXY": "file://" + proxy + ",file://" + cache + "/cache/download," + others, "GOMODCACHE": t.TempDir(), "GONOSUMDB": "k8s.io/fake,example.com", "GOFLAGS": "-modcacherw",
	} {
		t.Setenv(name, value)
	}
	return sums
}

// repository writes files, with changes, and commits them.
func repository(t *testing.T, changes map[string]string) string {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range files {
		write(name, text)
	}
	for name, text := range changes {
		write(name, text)
	}
	sum, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	all := string(sum) + serve(t)
	for _, directory := range []string{".", "pkg/a", "pkg/b", "test/tool"} {
		write(directory+"/go.sum", all)
	}
	for _, command := range []string{
		"git init -q", "git config user.name a", "git config user.email a@example.com", "git config core.excludesFile /dev/null", "git add .", "git commit -q -m all",
	} {
		if _, err := (place{directory: root}).ask(t.Context(), strings.Fields(command)...); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// prepared is a release of the repository.
func prepared(t *testing.T, changes map[string]string) (root, proxy string, err error) {
	t.Helper()
	root, proxy = filepath.Join(t.TempDir(), "source"), t.TempDir()
	if err := copyTree(t.Context(), repository(t, changes), root); err != nil {
		t.Fatal(err)
	}
	_, err = prepare(t.Context(), root, version, proxy)
	return root, proxy, err
}

func mustRead(t *testing.T, elements ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestModulesOfAReleaseRequireEachOtherByVersion(t *testing.T) {
	root, _, err := prepared(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		".":         "module example.com/r\n\ngo 1.26.0\n\nrequire (\n\texample.com/r/pkg/a v0.3.0\n\texample.com/r/pkg/b v0.3.0\n\tk8s.io/fake v0.37.0\n)\n",
		"pkg/b":     "module example.com/r/pkg/b\n\ngo 1.26.0\n\nrequire example.com/r/pkg/a v0.3.0\n",
		"pkg/a":     "module example.com/r/pkg/a\n\ngo 1.26.0\n\nrequire k8s.io/fake v0.35.0\n",
		"test/tool": "module example.com/r/test/tool\n\ngo 1.26.0\n\nrequire example.com/r/pkg/a v0.3.0\n\nreplace example.com/r/pkg/a => ../../pkg/a\n",
	} {
		if got := mustRead(t, root, name, "go.mod"); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
	if got := mustRead(t, root, "pkg/b/LICENSE"); got != files["LICENSE"] {
		t.Errorf("the license of a library: %q", got)
	}
	if exists(filepath.Join(root, "bin")) {
		t.Error("what git ignores is part of the release")
	}
	tool := exec.CommandContext(t.Context(), "go", "vet", "./...")
	tool.Dir, tool.Env = filepath.Join(root, "test", "tool"), append(os.Environ(), "GOFLAGS=-mod=readonly")
	if out, err := tool.CombinedOutput(); err != nil {
		t.Errorf("a tool of the release: %v\n%s", err, out)
	}
}

// A program has in its graph what the go.mod of a library lists.
func TestWhatOnlyOldVersionsOfKubernetesOrPropertyTestsNeedIsNotRequired(t *testing.T) {
	root, _, err := prepared(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := mustRead(t, root, "pkg/a/go.whole.mod"); got != files["pkg/a/go.mod"] {
		t.Errorf("go.whole.mod:\n%s", got)
	}
	if exists(filepath.Join(root, "pkg/a/a_property_test.go")) {
		t.Error("a property test is part of the release: go mod tidy of a program would look for what it imports")
	}
	tests := exec.CommandContext(t.Context(), "go", "test", "-modfile=go.whole.mod", "./...")
	tests.Dir = filepath.Join(root, "pkg", "a")
	if out, err := tests.CombinedOutput(); err != nil {
		t.Errorf("the tests of a release: %v\n%s", err, out)
	}
}

// The checksums in the release are made before there is anything that others could download. They must be those of what
// others download.
func TestTheChecksumsAreThoseOfWhatIsTagged(t *testing.T) {
	root := repository(t, nil)
	before := git(t, root, "rev-parse", "HEAD")
	commit, err := tagged(t, root)
	if err != nil {
		t.Fatal(err)
	}
	if got := git(t, root, "tag", "--points-at", commit); got != "pkg/a/v0.3.0\npkg/b/v0.3.0\nv0.3.0" {
		t.Errorf("tags %q", got)
	}
	if now := git(t, root, "rev-parse", "HEAD"); now != before || git(t, root, "status", "--porcelain") != "" || git(t, root, "rev-parse", commit+"^") != before {
		t.Error("the branch or the files were changed, or the release is not made of the branch")
	}
	sums := git(t, root, "show", commit+":go.sum")
	for _, short := range []string{"pkg/a", "pkg/b"} {
		file := filepath.Join(t.TempDir(), "module.zip")
		archive, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := zip.CreateFromVCS(archive, module.Version{Path: "example.com/r/" + short, Version: version}, root, short+"/"+version, short); err != nil {
			t.Fatal(err)
		}
		_ = archive.Close()
		hash, err := dirhash.HashZip(file, dirhash.Hash1)
		if err != nil {
			t.Fatal(err)
		}
		if want := "example.com/r/" + short + " " + version + " " + hash; !strings.Contains(sums, want) {
			t.Errorf("go.sum:\n%s\nwant %s", sums, want)
		}
	}
}

// A release is made again by whoever doubts it: of the same commit, however the branch has gone on.
func TestARecordedReleaseIsTheSameWheneverItIsMade(t *testing.T) {
	root := repository(t, nil)
	released := git(t, root, "rev-parse", "HEAD")
	first, err := tagged(t, root)
	if err != nil {
		t.Fatal(err)
	}
	lines := "# which is which\nv0.2.0 " + strings.Repeat("0", 40) + "\n" + version + " " + released + "\n"
	commitFile := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		git(t, root, "add", ".")
		git(t, root, "commit", "-q", "-m", name)
	}
	commitFile("pkg/a/more.go", "package a\n")
	if again, err := tagged(t, root); err == nil || !strings.Contains(err.Error(), version+" is another commit") {
		t.Errorf("a version is made of two commits: %s, %v", again, err)
	}
	commitFile(record, lines)
	if err := os.WriteFile(filepath.Join(root, "new.txt"), nil, 0o600); err != nil { // no part of what is recorded
		t.Fatal(err)
	}
	git(t, root, "config", "user.name", "another")
	if again, err := tagged(t, root); err != nil || again != first {
		t.Errorf("made again it is %s (%v), want %s", again, err, first)
	}
	for says, text := range map[string]string{
		"want a version and its whole commit": version + " " + released[:8] + "\n",
		"is not newer than":                   version + " " + released + "\nv0.2.0 " + released + "\n",
		"is not in this repository":           version + " " + strings.Repeat("1", 40) + "\n",
	} {
		commitFile(record, text)
		if _, err := tagged(t, root); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %s", text, err, says)
		}
	}
}

func TestTheRecordOfReleasesCanBeRead(t *testing.T) {
	const root = "../../.."
	if _, err := recorded(root, ""); err != nil {
		t.Error(err)
	}
	if commit, err := recorded(root, "v0.1.0"); err != nil || commit == "" {
		t.Errorf("v0.1.0: %q, %v", commit, err)
	}
}

// tagged makes a release as the command does, but for the check of what is built with it.
func tagged(t *testing.T, root string) (commit string, err error) {
	t.Helper()
	from, err := sourceOf(t.Context(), root, version)
	if err != nil {
		return "", err
	}
	at, err := checkout(t.Context(), root, t.TempDir(), from)
	if err != nil {
		return "", err
	}
	all, err := prepare(t.Context(), at.directory, version, t.TempDir())
	if err != nil {
		return "", err
	}
	if commit, err = commitAll(t.Context(), at, version, from); err != nil {
		return "", err
	}
	return commit, tagAll(t.Context(), place{directory: root}, all, version, commit)
}

func git(t *testing.T, root string, args ...string) string {
	t.Helper()
	out, err := place{directory: root}.ask(context.WithoutCancel(t.Context()), append([]string{"git"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestNothingThatIsNotCommittedIsReleased(t *testing.T) {
	root := repository(t, nil)
	if err := os.WriteFile(filepath.Join(root, "new.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := tagged(t, root); err == nil || !strings.Contains(err.Error(), "new.txt") {
		t.Errorf("got %v, want an error that names the file", err)
	}
	for _, bad := range []string{"0.3.0", "v0.3", "v0.3.0+1", "v2.0.0", ""} {
		if err := release(t.Context(), options{tree: repository(t, nil), version: bad}); err == nil || !strings.Contains(err.Error(), "-version") {
			t.Errorf("version %q: %v", bad, err)
		}
	}
}

// What nobody could install is found before it is tagged.
func TestARepositoryThatCannotBeReleasedIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ file, text, says string }{
		"it replaces what others made": {"pkg/b/go.mod", files["pkg/b/go.mod"] + "\nreplace golang.org/x/mod => golang.org/x/mod v0.41.0\n", "replaces golang.org/x/mod"},
		"it requires a tool":           {"pkg/b/go.mod", files["pkg/b/go.mod"] + "\nrequire example.com/r/test/tool " + replaced + "\n", "is not released"},
		"it requires a version":        {"pkg/b/go.mod", strings.ReplaceAll(files["pkg/b/go.mod"], replaced, "v0.2.0"), "it has to be " + replaced},
		"it requires itself":           {"pkg/a/go.mod", files["pkg/a/go.mod"] + "\nrequire example.com/r/pkg/b " + replaced + "\n\nreplace example.com/r/pkg/b => ../b\n", "requires itself"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := prepared(t, map[string]string{c.file: c.text}); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %s", err, c.says)
			}
		})
	}
}

func TestAProgramImportsWhatIsMeantForIt(t *testing.T) {
	all, err := readTree(repository(t, map[string]string{"pkg/a/nested/go.mod": "module example.com/r/pkg/a/nested\n", "pkg/a/nested/n.go": "package nested\n"}))
	if err != nil {
		t.Fatal(err)
	}
	got, err := packagesOf(t.Context(), all["example.com/r/pkg/a"])
	if slices.Sort(got); err != nil || !slices.Equal(got, []string{"example.com/r/pkg/a", "example.com/r/pkg/a/sub"}) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestTheNewestPatchIsNoPreview(t *testing.T) {
	versions := strings.Fields("v0.36.9 v0.36.10 v0.36.2 v0.36.11-rc.0 v0.37.0-alpha.1 v0.37.0 v0.3.7")
	for minor, want := range map[string]string{"v0.36": "v0.36.10", "v0.37": "v0.37.0", "v0.38": ""} {
		if got := newestOf(versions, minor); got != want {
			t.Errorf("%s: %q, want %q", minor, got, want)
		}
	}
}
