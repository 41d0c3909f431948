package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/regent-project/regent/test/e2e/harness"
)

// indented returns what a section of a document has to be typed: its indented lines, up to the next heading.
func indented(t *testing.T, document, heading string) (commands string) {
	t.Helper()
	_, section, found := strings.Cut(document, "\n"+heading+"\n")
	if !found {
		t.Fatalf("no section %q", heading)
	}
	for line := range strings.Lines(section) {
		if strings.HasPrefix(line, "#") {
			break
		}
		if command, ok := strings.CutPrefix(line, "    "); ok {
			commands += command
		}
	}
	if commands == "" {
		t.Fatalf("nothing to type in section %q", heading)
	}
	return commands
}

// What docs/ACCESS.md has users type to let a team in works, as it stands there, beside `make run`. What they add to the kubeconfig outlives a restart.
func TestATeamIsLetInAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../docs/ACCESS.md")
	if err != nil {
		t.Fatal(err)
	}
	document := string(content)
	yaml := regexp.MustCompile("(?s)Put this into `team.yaml`:\n\n```yaml\n(.*?)```").FindStringSubmatch(document)
	if yaml == nil {
		t.Fatal("there is no team.yaml")
	}
	d := startDev(t, 3)
	clone := t.TempDir() // what a user has there: .regent, bin, team.yaml
	if err := os.Symlink(d.root, filepath.Join(clone, ".regent")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(harness.Binary("kubectl")), filepath.Join(clone, "bin")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(clone, "team.yaml"), []byte(yaml[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	port := ""
	for _, flag := range d.flags {
		if after, ok := strings.CutPrefix(flag, "--secure-port="); ok {
			port = after
		}
	}
	script := "set -E; trap 'echo \"FAILED: $BASH_COMMAND\"' ERR; shopt -s expand_aliases\n" + // what fails is told, and the rest goes on
		"export KUBECONFIG=$PWD/.regent/admin.kubeconfig\nalias kubectl=$PWD/bin/kubectl regent=$PWD/bin/regent\n"
	for _, heading := range []string{"## Let a team in", "## Service accounts", "## Quotas", "### Renew"} {
		script += indented(t, document, heading)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", strings.ReplaceAll(script, "127.0.0.1:6443", "127.0.0.1:"+port))
	cmd.Dir, cmd.Env = clone, append(os.Environ(), "HOME="+clone)
	out, err := cmd.CombinedOutput()
	said := string(out)
	const refused = "FAILED: $PWD/bin/kubectl --context=bob-team-a auth can-i delete configmaps" // kubectl's way to say no
	if failed := strings.Count(said, "FAILED: "); err != nil || failed != 1 || !strings.Contains(said, strings.ReplaceAll(refused, "$PWD", clone)) {
		t.Fatalf("%v; %d commands failed, want one, with %q:\n%s", err, failed, refused, said)
	}
	for _, want := range []string{" ann\n", "[team-a system:authenticated]", "/team-a condition met", "\nhello ", "\nno\n", "system:serviceaccount:default:bot", "annotated", "admin.crt"} {
		if !strings.Contains(said, want) {
			t.Errorf("nothing says %q:\n%s", want, said)
		}
	}
	d.kubectl("", "--context=ann-team-a", "delete", "clusterrolebinding", "bob-enters")
	if out, err := d.run("kubectl", "", "--context=bob-team-a", "get", "configmaps"); err == nil || !strings.Contains(out, "system:kcp:workspace:access") {
		t.Errorf("bob is told %q", out)
	}
	d.stop()
	d.start()
	d.kubectl("", "--context=ann-team-a", "get", "configmap", "hello")
}
