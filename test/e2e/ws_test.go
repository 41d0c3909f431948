package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/regent-project/regent/test/e2e/harness"
)

// A newcomer makes workspaces, moves between them, gives one away, and deletes them, with regent and kubectl in turns.
func TestWorkspacesAreMadeAndEnteredByCommand(t *testing.T) {
	r := harness.NewShard("").Start(t, "a")
	r.WaitRoot()
	home := t.TempDir()
	file := filepath.Join(home, "kubeconfig")
	content, err := os.ReadFile(filepath.Join(r.Root, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	try := func(program string, args ...string) (string, error) {
		cmd := harness.Command(t, program, args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+file, "HOME="+home)
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	says := func(want, program string, args ...string) {
		t.Helper()
		if out, err := try(program, args...); err != nil || !strings.Contains(out, want) {
			t.Fatalf("%s %q: %v, says %q, want %q", program, args, err, out, want)
		}
	}
	refuses := func(want string, args ...string) {
		t.Helper()
		if out, err := try("regent", args...); err == nil || !strings.Contains(out, want) {
			t.Errorf("%q: %v, says %q, want %q", args, err, out, want)
		}
	}

	says(`Workspace "root:team-a" is ready`, "regent", "ws", "create", "team-a", "--enter")
	says("root:team-a", "regent", "ws", "current")
	says(`"root:team-a:web" is ready`, "regent", "ws", "create", "web")
	says("created", "kubectl", "create", "configmap", "here") // the kubeconfig is kubectl's, too
	refuses("already", "ws", "create", "web")
	says("is ready", "regent", "ws", "create", "web", "--ignore-existing")
	says("web", "kubectl", "get", "workspaces")
	says("web", "regent", "ws", "list")
	says(`"root:team-a:web"`, "regent", "ws", "web")
	says(`"root:team-a"`, "regent", "ws", "-")
	says(`"root"`, "regent", "ws", "..")
	says("└── team-a\n    └── web", "regent", "ws", "tree")
	refuses("not found", "ws", "use", "nobody")
	says("root", "regent", "ws", "current") // what was refused has changed nothing

	alone, err := try("regent", "ws", "kubeconfig", "team-a")
	if err != nil {
		t.Fatal(alone)
	}
	if err := os.WriteFile(file, []byte(alone), 0o600); err != nil {
		t.Fatal(err)
	}
	says("here", "kubectl", "get", "configmaps")
	refuses("cannot be deleted from here", "ws", "delete", ".")
	says(`"root:team-a:web" is gone`, "regent", "ws", "delete", "web")
	says("There is no workspace in root:team-a", "regent", "ws", "list")
}
