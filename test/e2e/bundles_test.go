package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/regent-project/regent/test/e2e/harness"
)

// regentUser runs commands with one kubeconfig.
type regentUser struct {
	*testing.T
	kubeconfig string
}

func (u regentUser) try(args ...string) (string, error) {
	u.Helper()
	cmd := harness.Command(u.T, "regent", append(args, "--kubeconfig="+u.kubeconfig)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (u regentUser) must(want string, args ...string) string {
	u.Helper()
	out, err := u.try(args...)
	if err != nil || !strings.Contains(out, want) {
		u.Fatalf("regent %q: %v, says %s, want %q", args, err, out, want)
	}
	return out
}

func (u regentUser) refuses(want string, args ...string) {
	u.Helper()
	if out, err := u.try(args...); err == nil || !strings.Contains(out, want) {
		u.Errorf("regent %q: %v, says %s, want %q", args, err, out, want)
	}
}

// tryKubectl runs kubectl as the administrator.
func tryKubectl(r *harness.Replica, cluster, stdin string, args ...string) (string, error) {
	cmd := r.AdminKubectl(cluster, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func mustKubectl(t *testing.T, r *harness.Replica, cluster, stdin string, args ...string) string {
	t.Helper()
	out, err := tryKubectl(r, cluster, stdin, args...)
	if err != nil {
		t.Fatalf("kubectl %q in %s: %v: %s", args, cluster, err, out)
	}
	return out
}

// what a workspace has that refers to other things: owners of each kind, a binding to an export below it, a definition.
const referring = `
apiVersion: v1
kind: Namespace
metadata: {name: app}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kept, namespace: app, labels: {a: b}, annotations: {c: d}, finalizers: [example.com/hold]}
data: {text: "<&>"}
---
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: app}
stringData: {key: hidden}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot, namespace: app}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: parts.example.org}
spec:
  group: example.org
  names: {kind: Part, plural: parts, singular: part, listKind: PartList}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// A workspace with all below it is exported, imported in another installation, and cloned: what refers to each other
// does so there, too.
func TestAWorkspaceIsExportedImportedAndCloned(t *testing.T) {
	here, there := harness.NewShard("").Start(t, "here"), harness.NewShard("").Start(t, "there")
	here.WaitRoot()
	there.WaitRoot()
	u, other := regentUser{t, filepath.Join(here.Root, "admin.kubeconfig")}, regentUser{t, filepath.Join(there.Root, "admin.kubeconfig")}
	u.must("ready", "ws", "create", "team")
	u.must("ready", "ws", "create", "root:team:provider")
	apply := func(cluster, yaml string) {
		t.Helper()
		mustKubectl(t, here, cluster, yaml, "apply", "-f", "-")
	}
	apply("root:team:provider", exported("Widget", "widgets"))
	apply("root:team", referring)
	apply("root:team", "{apiVersion: apis.kcp.io/v1alpha2, kind: APIBinding, metadata: {name: widgets}, spec: {reference: {export: {path: root:team:provider, name: widgets}}}}")
	mustKubectl(t, here, "root:team", "", "wait", "--for=jsonpath={.status.phase}=Bound", "--timeout=60s", "apibinding/widgets")
	uid := func(of ...string) string {
		t.Helper()
		return mustKubectl(t, here, "root:team", "", append(of, "-o", "jsonpath={.metadata.uid}")...)
	}
	owner := func(version, kind, name, uid string) string {
		return fmt.Sprintf("ownerReferences: [{apiVersion: %s, kind: %s, name: %s, uid: %s}]", version, kind, name, uid)
	}
	harness.Eventually(t, "the definition is served", func() bool {
		out, err := tryKubectl(here, "root:team", "{apiVersion: example.org/v1, kind: Part, metadata: {name: p}, spec: {size: 1}}", "apply", "-f", "-")
		return err == nil || !strings.Contains(out, "no matches")
	})
	mustKubectl(t, here, "root:team", "", "patch", "part", "p", "--subresource=status", "--type=merge", "-p", `{"status":{"done":true}}`)
	// a ConfigMap, which is imported before, belongs to a Widget, and that to a Part
	apply("root:team", "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: app, "+owner("example.org/v1", "Part", "p", uid("get", "part", "p"))+"}, spec: {size: 4}}")
	apply("root:team", "{apiVersion: v1, kind: ConfigMap, metadata: {name: of-w, namespace: app, "+owner("example.com/v1", "Widget", "w", uid("-n", "app", "get", "widget", "w"))+"}}")
	mustKubectl(t, here, "root:team", "", "delete", "clusterrolebinding", "workspace-admin", "--ignore-not-found")

	mustKubectl(t, here, "root:team", "", "label", "workspace", "provider", "team=blue")

	directory := t.TempDir()
	file, key := filepath.Join(directory, "team.bundle"), filepath.Join(directory, "key.txt")
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, []byte(identity.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	recipient := "--seal-to=" + identity.Recipient().String()
	u.refuses("is secret: seal", "cluster", "export", "root:team", "-f", file)
	out := u.must("Workspace root:team:provider", "cluster", "export", "root:team", "-f", file, "--recursive", recipient)
	u.refuses("there already", "cluster", "export", "root:team", "-f", file, recipient)
	t.Log(out)

	inspected := inspect(t, file)
	mustContain(t, inspected, "Workspace root:team: logical cluster", "Widget.example.com", "Workspace root:team:provider")
	content, err := os.ReadFile(file) //nolint:gosec // the test's own
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/3] ^= 1
	damaged := filepath.Join(directory, "damaged.bundle")
	if err := os.WriteFile(damaged, content, 0o600); err != nil {
		t.Fatal(err)
	}
	other.refuses("damaged", "cluster", "import", damaged)
	other.refuses("it is sealed for others", "cluster", "import", file)
	if out, _ := tryKubectl(there, "root", "", "get", "workspaces"); strings.Contains(out, "team") {
		t.Errorf("what cannot be read was begun: %s", out)
	}

	other.must("Workspace root:again", "cluster", "import", file, "root:again", "--identity="+key)
	mustBeWhole(t, there, "root:again")
	other.refuses("already", "cluster", "import", file, "root:again", "--identity="+key)
	other.must("Workspace root:unchecked", "cluster", "import", file, "root:unchecked", "--identity="+key, "--unchecked")
	mustBeWhole(t, there, "root:unchecked")
	for path, importer := range map[string]bool{"root:again": true, "root:unchecked": false} {
		for _, what := range []string{"configmap/kept", "secret/key", "widget/w"} {
			managers := mustKubectl(t, there, path, "", "-n", "app", "get", what, "--show-managed-fields", "-o", "jsonpath={.metadata.managedFields[*].manager}")
			if strings.Contains(managers, "regent-import") != importer {
				t.Errorf("%s of %s was written by %s", what, path, managers)
			}
		}
	}
	u.must("Workspace root:copy", "cluster", "clone", "root:team", "root:copy", "--recursive")
	mustBeWhole(t, here, "root:copy")
	u.must("Workspace root:quick", "cluster", "clone", "root:team", "root:quick", "--recursive", "--unchecked")
	mustBeWhole(t, here, "root:quick")
	if uid := uid("-n", "app", "get", "configmap", "kept"); uid == mustKubectl(t, here, "root:copy", "", "-n", "app", "get", "configmap", "kept", "-o", "jsonpath={.metadata.uid}") {
		t.Error("a clone has the uids of what it was made of")
	}
	mustBeWhole(t, here, "root:team") // of what was exported nothing has changed
}

func inspect(t *testing.T, file string) string {
	t.Helper()
	out, err := harness.Command(t, "regent", "cluster", "inspect", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// mustBeWhole checks that a workspace has what the one of TestAWorkspaceIsExportedImportedAndCloned has.
func mustBeWhole(t *testing.T, r *harness.Replica, path string) {
	t.Helper()
	get := func(cluster string, args ...string) string {
		t.Helper()
		return mustKubectl(t, r, cluster, "", append([]string{"get"}, args...)...)
	}
	for _, c := range []struct {
		want, path string
		args       []string
	}{
		{`<&> b d ["example.com/hold"]`, path, []string{"-n", "app", "configmap", "kept", "-o", "jsonpath={.data.text} {.metadata.labels.a} {.metadata.annotations.c} {.metadata.finalizers}"}},
		{"aGlkZGVu", path, []string{"-n", "app", "secret", "key", "-o", "jsonpath={.data.key}"}},
		{"robot", path, []string{"-n", "app", "serviceaccount", "robot", "-o", "name"}},
		{"reader", path, []string{"clusterrole", "reader", "-o", "name"}},
		{"1 true", path, []string{"part", "p", "-o", "jsonpath={.spec.size} {.status.done}"}},
		{"4", path, []string{"-n", "app", "widget", "w", "-o", "jsonpath={.spec.size}"}},
		{path + ":provider Bound", path, []string{"apibinding", "widgets", "-o", "jsonpath={.spec.reference.export.path} {.status.phase}"}},
		{"blue", path, []string{"workspace", "provider", "-o", "jsonpath={.metadata.labels.team}"}},
		{"widgets", path + ":provider", []string{"apiexport", "widgets", "-o", "name"}},
	} {
		if got := get(c.path, c.args...); !strings.Contains(got, c.want) {
			t.Errorf("%s: get %q: %s, want %s", c.path, c.args, got, c.want)
		}
	}
	for owned, by := range map[string][]string{"widget/w": {"part", "p"}, "configmap/of-w": {"-n", "app", "widget", "w"}} {
		owner := get(path, append(by, "-o", "jsonpath={.metadata.uid}")...)
		if got := get(path, "-n", "app", owned, "-o", "jsonpath={.metadata.ownerReferences[*].uid}"); got != owner {
			t.Errorf("%s of %s belongs to %s, and %q has uid %s", owned, path, got, by, owner)
		}
	}
	if out, err := tryKubectl(r, path, "", "get", "clusterrolebinding", "workspace-admin"); err == nil {
		t.Errorf("%s has what was deleted: %s", path, out)
	}
}

// A tenant that has deleted its objects has them back as they were a moment ago, or as a file has them, and no other
// workspace is touched.
func TestATenantHasItsObjectsBackAsTheyWere(t *testing.T) {
	t.Parallel()
	r := harness.NewShard("").Start(t, "a")
	r.WaitRoot()
	u := regentUser{t, filepath.Join(r.Root, "admin.kubeconfig")}
	for _, name := range []string{"team", "other"} {
		u.must("ready", "ws", "create", name)
		mustKubectl(t, r, "root:"+name, referring, "apply", "-f", "-")
	}
	content := func(cluster string) string {
		return mustKubectl(t, r, cluster, "", "-n", "app", "get", "configmaps,secrets,serviceaccounts", "-o", "jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.ownerReferences[*].name} {.data}{\"\\n\"}{end}")
	}
	mustKubectl(t, r, "root:team", "{apiVersion: v1, kind: ConfigMap, metadata: {name: owned, namespace: app, ownerReferences: [{apiVersion: v1, kind: Secret, name: key, uid: "+
		mustKubectl(t, r, "root:team", "", "-n", "app", "get", "secret", "key", "-o", "jsonpath={.metadata.uid}")+"}]}}", "apply", "-f", "-")
	before, others := content("root:team"), mustKubectl(t, r, "root:other", "", "-n", "app", "get", "configmaps,secrets,serviceaccounts", "-o", "yaml")
	file := filepath.Join(t.TempDir(), "team.bundle")
	u.must("root:team", "cluster", "export", "root:team", "-f", file, "--unsealed")

	for name, how := range map[string]func(since time.Time) []string{
		"of a file": func(time.Time) []string { return []string{"-f", file} },
		"as it was": func(since time.Time) []string { return []string{"--ago=" + time.Since(since).String()} },
	} {
		var good time.Time
		harness.Eventually(t, "the server knows a revision at which it was so", func() bool {
			good = time.Now()
			out, err := u.try("cluster", "restore", "root:team", "--ago="+time.Since(good).String(), "--prune", "--plan")
			// the one that it knows may be from before the workspace
			return err == nil && strings.Contains(out, "0 objects would be created, 0 updated, 0 deleted")
		})
		mustKubectl(t, r, "root:team", "", "-n", "app", "delete", "secret", "key")
		mustKubectl(t, r, "root:team", "", "-n", "app", "patch", "configmap", "kept", "--type=merge", "-p", `{"data":{"text":"changed"}}`)
		mustKubectl(t, r, "root:team", "", "-n", "app", "create", "configmap", "new")
		harness.Eventually(t, "what the secret owned is gone", func() bool { return !strings.Contains(content("root:team"), "owned") })
		restore := append([]string{"cluster", "restore", "root:team", "--namespace=app", "--prune"}, how(good)...)
		u.must("create core/secrets/app/key", append(restore, "--plan")...)
		if content("root:team") == before {
			t.Fatal("a plan has done something")
		}
		u.must("2 objects created, 1 updated, 1 deleted", append(restore[:5:5], how(good)...)...)
		if after := content("root:team"); after != before {
			t.Errorf("%s: it has\n%s\nwant\n%s", name, after, before)
		}
		u.must("0 objects created, 0 updated, 0 deleted", append(restore[:5:5], how(good)...)...)
	}
	if after := mustKubectl(t, r, "root:other", "", "-n", "app", "get", "configmaps,secrets,serviceaccounts", "-o", "yaml"); after != others {
		t.Errorf("the other workspace has\n%s\nwant\n%s", after, others)
	}
	u.refuses("does not know which revision", "cluster", "restore", "root:team", "--ago=10h")
	u.refuses("either -f team.bundle, or --ago=2m", "cluster", "restore", "root:team")
}

// Exports succeed, and are whole, while replicas are killed one after the other, through a front that forwards to
// whichever lives.
func TestExportsSucceedWhileReplicasAreKilled(t *testing.T) {
	t.Parallel()
	i := harness.Install(t)
	front := i.StartFront()
	u := regentUser{t, i.Kubeconfig()}
	u.must("ready", "ws", "create", "team")
	kube, err := kubernetes.NewForConfig(i.Root.Replicas[0].AdminConfig("root:team"))
	if err != nil {
		t.Fatal(err)
	}
	const objects = 60 // of 200 KB each: several pages
	for n := range objects {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%02d", n)}, Data: map[string]string{"text": strings.Repeat("x", 200_000)}}
		if _, err := kube.CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	front.WaitSnapshot()
	var exports atomic.Int64
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			default:
			}
			file := filepath.Join(t.TempDir(), fmt.Sprintf("%d.bundle", n))
			if out, err := u.try("cluster", "export", "root:team", "-f", file); err != nil {
				t.Errorf("%v: %s", err, out)
			} else if text, err := harness.Command(t, "regent", "cluster", "inspect", file).CombinedOutput(); err != nil || !strings.Contains(string(text), fmt.Sprintf("%d objects", objects+1)) {
				t.Errorf("%v: %s", err, text)
			}
			exports.Add(1)
		}
	}()
	stop := sync.OnceFunc(func() { close(done); <-ended })
	defer stop()
	for _, r := range i.Root.Replicas {
		before := exports.Load()
		r.Kill()
		harness.Eventually(t, "two exports after a kill", func() bool { return exports.Load() > before+1 || t.Failed() })
		r.Again()
		r.WaitReady()
	}
	stop()
	t.Logf("%d exports during two kills", exports.Load())
}
