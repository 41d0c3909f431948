package deploy

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"
)

// What is handed out besides the image.
var archiveName, chartName, krewName = "regent_v0.0.0-test_linux_" + runtime.GOARCH, "regent_v0.0.0-test_chart.tgz", "regent_v0.0.0-test_krew.yaml"

func TestTheSameSourceGivesTheSameArchives(t *testing.T) {
	here, there := directories(t)
	sums := lines(t, filepath.Join(here, "SHA256SUMS"))
	for _, name := range []string{archiveName + ".tar.gz", archiveName + ".cdx.json", chartName, krewName} {
		same(t, filepath.Join(here, name), filepath.Join(there, name))
		content, err := os.ReadFile(filepath.Join(here, name))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(content)
		if line := hex.EncodeToString(sum[:]) + "  " + name; !slices.Contains(sums, line) {
			t.Errorf("SHA256SUMS has no line %s", line)
		}
	}
	checkArchive(t, filepath.Join(here, archiveName+".tar.gz"))
	checkBill(t, filepath.Join(here, archiveName+".cdx.json"))
	checkChart(t, filepath.Join(here, chartName))
	checkKrew(t, filepath.Join(here, krewName), filepath.Join(here, archiveName+".tar.gz"))
}

// checkChart holds that the chart is the one in the repository, and says which version it installs.
func checkChart(t *testing.T, file string) {
	t.Helper()
	to := t.TempDir()
	unpackCompressed(t, file, to)
	if err := fs.WalkDir(os.DirFS(chart), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		want, err := os.ReadFile(filepath.Join(chart, name))
		if err != nil {
			return err
		}
		got, err := os.ReadFile(filepath.Join(to, "regent", name))
		if err != nil {
			return err
		}
		if name == "Chart.yaml" {
			want = bytes.Replace(want, []byte(`appVersion: "1"`), []byte(`appVersion: "0.0.0-test"`), 1)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s of the chart is\n%s", name, got)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// krewManifest is what krew reads of a manifest: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest.
type krewManifest struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version          string `json:"version"`
		ShortDescription string `json:"shortDescription"`
		Description      string `json:"description"`
		Caveats          string `json:"caveats"`
		Homepage         string `json:"homepage"`
		Platforms        []struct {
			Selector struct {
				MatchLabels map[string]string `json:"matchLabels"`
			} `json:"selector"`
			URI    string `json:"uri"`
			Sha256 string `json:"sha256"`
			Bin    string `json:"bin"`
			Files  []struct {
				From string `json:"from"`
				To   string `json:"to"`
			} `json:"files"`
		} `json:"platforms"`
	} `json:"spec"`
}

// checkKrew does with the manifest and the archive what krew does: it takes the files from the archive, and calls bin
// by the name under which kubectl looks for it.
func checkKrew(t *testing.T, file, archive string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var m krewManifest
	if err := yaml.UnmarshalStrict(text, &m); err != nil {
		t.Fatal(err)
	}
	if m.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || m.Kind != "Plugin" || m.Metadata.Name != "regent" || m.Spec.Version != "v0.0.0-test" ||
		m.Spec.Description == "" || !strings.HasPrefix(m.Spec.Homepage, "https://") || m.Spec.ShortDescription == "" || len(m.Spec.ShortDescription) > 50 || len(m.Spec.Platforms) != 1 {
		t.Fatalf("%+v", m)
	}
	content, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	sum, p := sha256.Sum256(content), m.Spec.Platforms[0]
	if p.Sha256 != hex.EncodeToString(sum[:]) || !strings.HasSuffix(p.URI, "/v0.0.0-test/"+filepath.Base(archive)) || p.Selector.MatchLabels["arch"] != runtime.GOARCH || p.Selector.MatchLabels["os"] != "linux" {
		t.Errorf("%+v", p)
	}
	from, to := t.TempDir(), t.TempDir()
	unpackCompressed(t, archive, from)
	for _, f := range p.Files {
		if err := os.Rename(filepath.Join(from, f.From), filepath.Join(to, f.To, filepath.Base(f.From))); err != nil {
			t.Error(err)
		}
	}
	plugin := filepath.Join(t.TempDir(), "kubectl-regent")
	if err := os.Symlink(filepath.Join(to, p.Bin), plugin); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), plugin, "--help").Output(); err != nil || !strings.Contains(string(out), "kubectl regent") {
		t.Errorf("the plugin says %s (%v)", out, err)
	}
}

// unpackCompressed unpacks an archive that is compressed.
func unpackCompressed(t *testing.T, file, to string) {
	t.Helper()
	packed, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = packed.Close() }()
	archive, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	unpack(t, archive, to)
}

func checkArchive(t *testing.T, file string) {
	t.Helper()
	to := t.TempDir()
	unpackCompressed(t, file, to)
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", "GOVERNANCE.md", "docs/INSTALL.md", "deploy/helm/regent/Chart.yaml", "deploy/helm/regent/templates/_names.tpl", "deploy/systemd/regent.service"} {
		if _, err := os.Stat(filepath.Join(to, archiveName, name)); err != nil {
			t.Error(err)
		}
	}
	for program, says := range map[string]string{
		"regent": "regent.v0.0.0-test", "kubectl-regent": "regent.v0.0.0-test", "etcdctl": "etcdctl version: 3.7", "etcdutl": "etcdutl version: 3.7",
	} {
		if out, err := exec.CommandContext(t.Context(), filepath.Join(to, archiveName, program), "version").Output(); err != nil || !strings.Contains(string(out), says) {
			t.Errorf("%s says %q, %v", program, out, err)
		}
	}
}

// checkBill checks a bill of materials against CycloneDX's own schema, and that what is linked is in it.
func checkBill(t *testing.T, file string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(content)))
	if err != nil {
		t.Fatal(err)
	}
	if err := billSchema(t).Validate(document); err != nil {
		t.Error(err)
	}
	var bill cdx.BOM
	if err := json.Unmarshal(content, &bill); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, c := range *bill.Components {
		found[c.Name] = c.Version
	}
	for _, name := range []string{"std", "k8s.io/apiserver", "go.etcd.io/etcd/client/v3", "go.etcd.io/etcd/etcdutl/v3"} {
		if found[name] == "" {
			t.Errorf("%s is linked, and not in the bill", name)
		}
	}
	if bill.Metadata.Component.Version != "v0.0.0-test" || found["pgregory.net/rapid"] != "" {
		t.Errorf("it is of %s, or has what only tests need", bill.Metadata.Component.Version)
	}
}

// billSchema is in the sources of CycloneDX's library, with what it refers to.
func billSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	directory, compiler := filepath.Join(strings.TrimSpace(string(out)), "schema"), jsonschema.NewCompiler()
	for name, file := range map[string]string{"bom-1.6.schema.json": "bom-1.6.schema.json", "spdx.schema.json": "spdx.schema.json", "jsf-0.82.schema.json": "jsf-0.82.schemax.json"} {
		content, err := os.Open(filepath.Join(directory, file))
		if err != nil {
			t.Fatal(err)
		}
		document, err := jsonschema.UnmarshalJSON(content)
		if err := content.Close(); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := compiler.AddResource("http://cyclonedx.org/schema/"+name, document); err != nil {
			t.Fatal(err)
		}
	}
	schema, err := compiler.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}
