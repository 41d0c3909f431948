package deploy

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

var archiveName = "regent_v0.0.0-test_linux_" + runtime.GOARCH

func TestTheSameSourceGivesTheSameArchives(t *testing.T) {
	here, there := directories(t)
	sums := lines(t, filepath.Join(here, "SHA256SUMS"))
	for _, ending := range []string{".tar.gz", ".cdx.json"} {
		name := archiveName + ending
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
}

func checkArchive(t *testing.T, file string) {
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
	to := t.TempDir()
	unpack(t, archive, to)
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
