package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/regent-project/regent/test/e2e/harness"
)

// shell is a user's: a kubeconfig of their own, with one server at a time, as kcp's kubectl-ws keeps it.
type shell struct {
	t                *testing.T
	kubeconfig, home string
}

// openShell begins where the administrator's kubeconfig leads.
func openShell(t *testing.T, i *harness.Installation) *shell {
	t.Helper()
	content, err := os.ReadFile(i.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	s := &shell{t: t, home: t.TempDir()}
	s.kubeconfig = filepath.Join(s.home, "kubeconfig")
	if err := os.WriteFile(s.kubeconfig, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *shell) command(args ...string) *exec.Cmd {
	cmd := harness.Command(s.t, "kubectl", args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig, "HOME="+s.home)
	return cmd
}

// in runs kubectl with input; it must succeed.
func (s *shell) in(stdin string, args ...string) string {
	s.t.Helper()
	cmd := s.command(args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (s *shell) run(args ...string) string {
	s.t.Helper()
	return s.in("", args...)
}

// enter goes to a workspace: kubectl-ws writes its URL into the kubeconfig.
func (s *shell) enter(url string) {
	s.t.Helper()
	s.run("config", "set-cluster", "root", "--server="+url)
}

// create creates a Workspace on a shard, waits until it is Ready, and returns its URL, as kubectl-create-workspace
// does.
func (s *shell) create(name, shard string) (url string) {
	s.t.Helper()
	s.in(fmt.Sprintf(`{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":%q},"spec":{"location":{"selector":{"matchLabels":{"at":%q}}}}}`, name, shard), "create", "-f", "-")
	s.run("wait", "--for=jsonpath={.status.phase}=Ready", "--timeout=60s", "workspace/"+name)
	got, url, _ := strings.Cut(s.run("get", "workspace", name, "-o", `jsonpath={.metadata.labels.regent\.dev/shard} {.spec.URL}`), " ")
	if got != shard {
		s.t.Errorf("workspace %s is on shard %q, want %s", name, got, shard)
	}
	return url
}

// mustNotFind checks that kubectl says which cluster does not exist, and does not say that it is forbidden.
func (s *shell) mustNotFind(path string, args ...string) {
	s.t.Helper()
	if fault := s.finds(path, args...); fault != "" {
		s.t.Error(fault)
	}
}

// finds returns what kubectl says instead; empty: nothing.
func (s *shell) finds(path string, args ...string) (fault string) {
	s.t.Helper()
	out, err := s.command(args...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "(NotFound)") || !strings.Contains(string(out), fmt.Sprintf("logical cluster %q not found", path)) {
		return fmt.Sprintf("kubectl %s: want that %s is not found, got %v:\n%s", strings.Join(args, " "), path, err, out)
	}
	return ""
}

// What kcp's kubectl-ws and kubectl-create-workspace do, with kubectl alone: they create Workspaces, wait, and go on at
// spec.URL. A user does not see which shard has which cluster.
func TestKubectlGoesFromWorkspaceToWorkspaceAcrossShards(t *testing.T) {
	t.Parallel()
	i := harness.Install(t, "eu1", "us1")
	for _, m := range i.All() {
		if _, err := i.TryRegent("shard", "set", m.Name, "--label=at="+m.Name); err != nil {
			t.Fatal(err)
		}
	}
	front := i.StartFront()
	harness.Eventually(t, "replicas know which version the front runs", func() bool {
		out, err := i.TryRegent("upgrade", "status")
		return err == nil && regexp.MustCompile(`front/\S+ +v\d`).MatchString(out)
	})
	user := openShell(t, i)
	root := front.URL + "/clusters/root"

	path, urls := "root", map[string]string{"root": root}
	for _, on := range []string{"eu1", "us1", "root"} {
		name := "in-" + on
		user.mustNotFind(path+":"+name, "--server="+root+strings.TrimPrefix(path, "root")+":"+name, "get", "configmaps")
		path += ":" + name
		url := user.create(name, on)
		if want := front.URL + "/clusters/" + path; url != want {
			t.Errorf("the URL is %s, want %s", url, want)
		}
		urls[path] = url
		user.enter(url)
		mustContain(t, user.run("api-resources", "-o", "name"), "workspaces.tenancy.kcp.io", "configmaps")
		mustContain(t, user.in(configMap("where", path), "apply", "-f", "-"), "configmap/where created")
		mustContain(t, user.in(configMap("where", path), "apply", "-f", "-"), "unchanged")
	}
	for path, url := range urls {
		if path == "root" {
			continue
		}
		if got := user.run("--server="+url, "get", "configmap", "where", "-o", "jsonpath={.data.key}"); got != path {
			t.Errorf("at %s there is what was written at %q", path, got)
		}
		for _, args := range [][]string{{"get", "configmaps"}, {"get", "--raw=/api/v1/namespaces"}, {"api-resources"}, {"delete", "workspace", "nowhere"}} {
			user.mustNotFind(path+":nowhere", append([]string{"--server=" + url + ":nowhere"}, args...)...)
		}
	}
	kubectlStreams(t, i, user)

	// Deleted from its parent, with what is below on other shards. kubectl keeps what it discovered by URL, and a
	// new workspace there is another cluster.
	const first = "root:in-eu1"
	user.enter(root)
	watch := startWatch(t, user.command("--server="+urls[path], "get", "configmaps", "-w", "--output-watch-events"), "where")
	mustContain(t, user.run("delete", "workspace", "in-eu1", "--timeout=60s"), "deleted")
	harness.Eventually(t, "a watch shows the deletion", func() bool { return strings.Contains(watch.output.String(), "DELETED") })
	for path, url := range urls {
		if path != "root" { // the front hears of each cluster's end from the shard that had it
			harness.Eventually(t, first+", the first that is missing on the path, is not found at "+url, func() bool {
				return user.finds(first, "--server="+url, "get", "configmaps") == ""
			})
		}
	}
	for _, m := range i.All() {
		if left := logicalClusters(t, m); len(left) != 0 && (m != i.Root || len(left) != 1) {
			t.Errorf("clusters are left on shard %s: %v", m.Name, left)
		}
	}
	if again := user.create("in-eu1", "us1"); again != urls[first] {
		t.Errorf("the URL is %s, want %s", again, urls[first])
	}
	user.enter(urls[first])
	if out := user.run("get", "configmaps", "--all-namespaces", "--field-selector=metadata.name!=kube-root-ca.crt", "-o", "name"); out != "" {
		t.Errorf("a new workspace has %s", out)
	}
}

// kubectlStreams checks that a watch shows what happens, and ends without an error if the replica that serves it dies.
func kubectlStreams(t *testing.T, i *harness.Installation, user *shell) {
	t.Helper()
	watch := startWatch(t, user.command("get", "configmaps", "-w", "--output-watch-events"), "where")
	user.in(configMap("where", "changed"), "apply", "-f", "-")
	user.run("create", "configmap", "passing")
	user.run("delete", "configmap", "passing")
	harness.Eventually(t, "kubectl shows all events", func() bool {
		out := watch.output.String()
		return strings.Contains(out, "MODIFIED") && strings.Contains(out, "ADDED") && strings.Contains(out, "DELETED")
	})
	for _, r := range i.Root.Replicas { // one of them serves the watch
		r.Signal(syscall.SIGKILL)
		r.Wait()
		r.Again()
		r.WaitReady()
	}
	watch.mustEnd(t)
	if out := watch.output.String(); watch.status != nil || strings.Contains(out, "ERROR") {
		t.Errorf("kubectl ends with %v: %s", watch.status, out)
	}
}
