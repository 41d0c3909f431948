package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/regent-project/regent/pkg/server/apis"
	"github.com/regent-project/regent/test/e2e/harness"
)

// kubectl runs kubectl in one logical cluster.
type kubectl struct {
	*harness.Replica
	cluster string
}

func (k kubectl) run(args ...string) string {
	return k.Kubectl(k.cluster, args...)
}

// in runs it with input; it must succeed.
func (k kubectl) in(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := k.TryKubectl(k.cluster, stdin, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// refused runs it with input; it must fail and say so.
func (k kubectl) refused(t *testing.T, want, stdin string, args ...string) {
	t.Helper()
	if out, err := k.TryKubectl(k.cluster, stdin, args...); err == nil || !strings.Contains(out, want) {
		t.Errorf("kubectl %s: want a failure with %q, got %v:\n%s", strings.Join(args, " "), want, err, out)
	}
}

// soonRefused is refused, once a cache of the server has what was done before.
func (k kubectl) soonRefused(t *testing.T, want, stdin string, args ...string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("kubectl %s fails with %q", strings.Join(args, " "), want), func() bool {
		out, err := k.TryKubectl(k.cluster, stdin, args...)
		return err != nil && strings.Contains(out, want)
	})
}

// field reads one field of an object.
func (k kubectl) field(object, path string) string {
	return k.run("get", object, "-o", "jsonpath={"+path+"}")
}

func (k kubectl) exists(object string, args ...string) bool {
	out, err := k.TryKubectl(k.cluster, "", append([]string{"get", object, "-o", "name", "--ignore-not-found"}, args...)...)
	return err != nil || strings.TrimSpace(out) != ""
}

func mustContain(t *testing.T, out string, all ...string) {
	t.Helper()
	for _, want := range all {
		if !strings.Contains(out, want) {
			t.Errorf("want %q in:\n%s", want, out)
		}
	}
}

func configMap(name, value string, labels ...string) string {
	metadata := fmt.Sprintf(`"name":%q`, name)
	if len(labels) > 0 {
		metadata += `,"labels":{` + strings.Join(labels, ",") + `}`
	}
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{%s},"data":{"key":%q}}`, metadata, value)
}

// It is slow because each of more than a hundred commands is a process of its own, one after the other.
func TestKubectlWorksAsUsersUseIt(t *testing.T) {
	t.Parallel() // one process after the other, with no bound on time
	r := harness.NewShard(harness.StartEtcd(t).URL).Start(t, "a")
	r.WaitRoot()
	r.CreateWorkspace("team")
	r.WaitWorkspace("team")
	team := kubectl{r, "root:team"}
	for name, scenario := range map[string]func(*testing.T, kubectl){
		"get": kubectlGet, "get -w": kubectlWatches, "apply and diff": kubectlApply, "server-side apply": kubectlServerSideApply,
		"edit": kubectlEdit, "patch": kubectlPatch, "label and annotate": kubectlLabel, "delete with dependents": kubectlCascades,
		"delete": kubectlDelete, "explain and api-resources": kubectlDiscovers, "workspaces": kubectlWorkspaces, "events": kubectlEvents,
		"missing and terminating namespaces": kubectlNamespaces, "version": kubectlVersion, "dry runs": kubectlDryRuns,
	} {
		t.Run(name, func(t *testing.T) { scenario(t, team) })
	}
}

func kubectlGet(t *testing.T, k kubectl) {
	k.run("create", "namespace", "listed")
	k.run("create", "configmap", "one", "-n", "listed", "--from-literal=a=b")
	k.run("create", "secret", "generic", "one", "-n", "listed", "--from-literal=a=b")
	mustContain(t, k.run("get", "namespaces"), "NAME", "STATUS", "AGE", "default", "kube-system", "listed", "Active")
	mustContain(t, k.run("get", "cm", "-n", "listed"), "NAME", "DATA", "one")
	mustContain(t, k.run("get", "cm", "-A"), "NAMESPACE", "listed")
	mustContain(t, k.run("get", "cm,secrets", "-n", "listed", "-o", "wide"), "configmap/one", "secret/one", "Opaque")
	mustContain(t, k.run("get", "cm", "one", "-n", "listed", "-o", "yaml"), "kind: ConfigMap", "a: b")
	mustContain(t, k.run("get", "cm", "-A", "--field-selector=metadata.name=one", "-o", "name"), "configmap/one")
	mustContain(t, k.run("get", "--raw", "/version"), "gitVersion")
	mustContain(t, k.run("describe", "cm", "one", "-n", "listed"), "Name:", "one", "Data")
	k.refused(t, "NotFound", "", "get", "cm", "none", "-n", "listed")
	admin := kubectl{k.Replica, "system:admin"}
	mustContain(t, admin.run("get", "leases", "-n", "kube-system"), "HOLDER", harness.LeaseName)
}

func kubectlWatches(t *testing.T, k kubectl) {
	k.run("create", "configmap", "watched", "--from-literal=a=b")
	w := startKubectl(t, k, "watched", "get", "configmaps", "-w", "--output-watch-events", "--field-selector=metadata.name=watched")
	k.run("label", "configmap", "watched", "seen=true")
	k.run("delete", "configmap", "watched")
	harness.Eventually(t, "kubectl shows all events", func() bool {
		out := w.output.String()
		return strings.Contains(out, "ADDED") && strings.Contains(out, "MODIFIED") && strings.Contains(out, "DELETED")
	})
}

func kubectlApply(t *testing.T, k kubectl) {
	mustContain(t, k.in(t, configMap("applied", "1"), "apply", "-f", "-"), "created")
	mustContain(t, k.in(t, configMap("applied", "1"), "apply", "-f", "-"), "unchanged")

	// diff ends with 1 if there is a difference.
	out, err := k.TryKubectl(k.cluster, configMap("applied", "2"), "diff", "-f", "-")
	if err == nil {
		t.Errorf("kubectl diff found no difference:\n%s", out)
	}
	mustContain(t, out, `-  key: "1"`, `+  key: "2"`)
	mustContain(t, k.in(t, configMap("applied", "2"), "apply", "-f", "-"), "configured")
	if out, err := k.TryKubectl(k.cluster, configMap("applied", "2"), "diff", "-f", "-"); err != nil {
		t.Errorf("a difference after apply: %v\n%s", err, out)
	}
	// What is no longer in the file goes.
	k.in(t, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"}}`, "apply", "-f", "-")
	if data := k.field("cm/applied", ".data"); data != "" {
		t.Errorf("data %s is left", data)
	}
	k.refused(t, "unknown field", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"},"dta":{}}`, "apply", "-f", "-")
}

func kubectlServerSideApply(t *testing.T, k kubectl) {
	apply := func(manager string) []string {
		return []string{"apply", "--server-side", "--field-manager=" + manager, "-f", "-"}
	}
	mustContain(t, k.in(t, configMap("owned", "1", `"of":"alice"`), apply("alice")...), "serverside-applied")
	k.refused(t, "conflict", configMap("owned", "2"), apply("bob")...)
	k.in(t, configMap("owned", "2"), append(apply("bob"), "--force-conflicts")...)
	if value := k.field("cm/owned", ".data.key"); value != "2" {
		t.Errorf("key is %s", value)
	}
	mustContain(t, k.run("get", "cm", "owned", "--show-managed-fields", "-o", "jsonpath={.metadata.managedFields[*].manager}"), "alice", "bob")
	if out, err := k.TryKubectl(k.cluster, configMap("owned", "2"), "diff", "--server-side", "--field-manager=bob", "-f", "-"); err != nil {
		t.Errorf("a difference after apply: %v\n%s", err, out)
	}
}

func kubectlEdit(t *testing.T, k kubectl) {
	k.in(t, configMap("edited", "before"), "create", "-f", "-")
	editor := filepath.Join(t.TempDir(), "editor")
	script := "#!/bin/sh\nsed -i s/before/after/ \"$1\"\n"
	if err := os.WriteFile(editor, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := k.KubectlCommand(k.cluster, "edit", "cm", "edited")
	cmd.Env = append(cmd.Env, "KUBE_EDITOR="+editor)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "configmap/edited edited") {
		t.Errorf("kubectl edit: %v\n%s", err, out)
	}
	if value := k.field("cm/edited", ".data.key"); value != "after" {
		t.Errorf("key is %s", value)
	}
}

func kubectlPatch(t *testing.T, k kubectl) {
	k.in(t, configMap("patched", "0"), "create", "-f", "-")
	for kind, patch := range map[string]string{
		"strategic": `{"data":{"strategic":"yes"}}`,
		"merge":     `{"data":{"merge":"yes"}}`,
		"json":      `[{"op":"add","path":"/data/json","value":"yes"}]`,
	} {
		k.run("patch", "cm", "patched", "--type="+kind, "-p", patch)
		if value := k.field("cm/patched", ".data."+kind); value != "yes" {
			t.Errorf("%s patch: %q", kind, value)
		}
	}
	// kcp's types take the same three.
	ws := kubectl{k.Replica, "root"}
	ws.run("patch", "workspace", "team", "--type=merge", "-p", `{"metadata":{"annotations":{"merge":"yes"}}}`)
	ws.run("patch", "workspace", "team", "--type=strategic", "-p", `{"metadata":{"annotations":{"strategic":"yes"}}}`)
	ws.run("patch", "workspace", "team", "--type=json", "-p", `[{"op":"add","path":"/metadata/annotations/json","value":"yes"}]`)
	mustContain(t, ws.field("workspace/team", ".metadata.annotations"), `"merge":"yes"`, `"strategic":"yes"`, `"json":"yes"`)
}

func kubectlLabel(t *testing.T, k kubectl) {
	for _, name := range []string{"red", "green"} {
		k.in(t, configMap(name, "1"), "create", "-f", "-")
		k.run("label", "cm", name, "colour="+name)
	}
	k.run("annotate", "cm", "red", "note=seen")
	if out := k.run("get", "cm", "-l", "colour=red", "-o", "name"); strings.TrimSpace(out) != "configmap/red" {
		t.Errorf("selected: %s", out)
	}
	mustContain(t, k.run("get", "cm", "-L", "colour", "-l", "colour in (red,green)"), "COLOUR", "red", "green")
	k.refused(t, "--overwrite", "", "label", "cm", "red", "colour=blue")
	k.run("label", "cm", "red", "colour-")
	if out := k.run("get", "cm", "-l", "colour", "-o", "name"); strings.TrimSpace(out) != "configmap/green" {
		t.Errorf("selected: %s", out)
	}
}

func kubectlDelete(t *testing.T, k kubectl) {
	for _, name := range []string{"x", "y", "z"} {
		k.in(t, configMap("deleted-"+name, "1", `"deleted":"soon"`), "create", "-f", "-")
	}
	k.run("delete", "cm", "deleted-x")
	k.run("delete", "cm", "-l", "deleted=soon")
	if out := k.run("get", "cm", "-l", "deleted=soon", "-o", "name"); out != "" {
		t.Errorf("left: %s", out)
	}
	k.in(t, configMap("held", "1"), "create", "-f", "-")
	k.run("patch", "cm", "held", "--type=merge", "-p", `{"metadata":{"finalizers":["example.org/held"]}}`)
	k.run("delete", "cm", "held", "--wait=false")
	waiting := k.KubectlCommand(k.cluster, "wait", "--for=delete", "cm/held", "--timeout=60s")
	if err := waiting.Start(); err != nil {
		t.Fatal(err)
	}
	k.run("patch", "cm", "held", "--type=json", "-p", `[{"op":"remove","path":"/metadata/finalizers"}]`)
	if err := waiting.Wait(); err != nil {
		t.Errorf("kubectl wait --for=delete: %v", err)
	}
}

func kubectlCascades(t *testing.T, k kubectl) {
	for policy, stays := range map[string]bool{"foreground": false, "background": false, "orphan": true} {
		owner, child := "owner-"+policy, "child-"+policy
		k.in(t, configMap(owner, "1"), "create", "-f", "-")
		uid := k.field("cm/"+owner, ".metadata.uid")
		k.in(t, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"ownerReferences":[
			{"apiVersion":"v1","kind":"ConfigMap","name":%q,"uid":%q,"blockOwnerDeletion":true}]}}`, child, owner, uid), "create", "-f", "-")
		k.run("delete", "cm", owner, "--cascade="+policy)
		if k.exists("cm/" + owner) {
			t.Errorf("%s: the owner is left", policy)
		}
		switch {
		case stays:
			if references := k.field("cm/"+child, ".metadata.ownerReferences"); references != "" {
				t.Errorf("%s: the child still refers to %s", policy, references)
			}
		case policy == "foreground":
			if k.exists("cm/" + child) {
				t.Errorf("%s: the owner went before the child", policy)
			}
		default:
			harness.Eventually(t, "the child is gone", func() bool { return !k.exists("cm/" + child) })
		}
	}
}

func kubectlDiscovers(t *testing.T, k kubectl) {
	mustContain(t, k.run("explain", "configmap.data"), "FIELD: data", "Data contains the configuration data")
	mustContain(t, k.run("explain", "workspace.spec"), "tenancy.kcp.io", "cluster")
	mustContain(t, k.run("explain", "logicalcluster.status.phase"), "FIELD: phase")
	mustContain(t, k.run("explain", "lease.spec", "--recursive"), "leaseTransitions")
	var names []string
	for name := range strings.FieldsSeq(k.run("api-resources", "-o", "name")) {
		names = append(names, name)
	}
	slices.Sort(names)
	want := []string{
		// shows the events of core
		"events.events.k8s.io",
		"selfsubjectreviews.authentication.k8s.io", "tokenreviews.authentication.k8s.io", // are stored nowhere
		"localsubjectaccessreviews.authorization.k8s.io", "selfsubjectaccessreviews.authorization.k8s.io",
		"selfsubjectrulesreviews.authorization.k8s.io", "subjectaccessreviews.authorization.k8s.io",
	}
	for _, r := range apis.Resources() {
		want = append(want, r.GVR.GroupResource().String())
	}
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("api-resources:\n%v, want\n%v", names, want)
	}
	mustContain(t, k.run("api-resources"), "SHORTNAMES", "cm", "ns", "ev", "ws")
	mustContain(t, k.run("api-versions"), "v1", "coordination.k8s.io/v1", "tenancy.kcp.io/v1alpha1", "core.kcp.io/v1alpha1", "events.k8s.io/v1")
}

func kubectlWorkspaces(t *testing.T, k kubectl) {
	k.in(t, `{"apiVersion":"tenancy.kcp.io/v1alpha1","kind":"Workspace","metadata":{"name":"nested"}}`, "create", "-f", "-")
	mustContain(t, k.run("wait", "--for=jsonpath={.status.phase}=Ready", "workspace/nested", "--timeout=60s"), "condition met")
	mustContain(t, k.run("get", "workspaces"), "NAME", "TYPE", "PHASE", "nested", "Ready")
	mustContain(t, k.run("get", "ws", "-o", "wide"), "/clusters/root:team:nested")
	nested := kubectl{k.Replica, "root:team:nested"}
	mustContain(t, nested.run("get", "namespaces"), "default", "kube-system")
	nested.run("create", "configmap", "inner", "--from-literal=a=b")
	if k.exists("cm/inner") {
		t.Error("the parent sees what is in its child")
	}
	mustContain(t, nested.run("get", "logicalcluster", "cluster", "-o", "wide"), "Ready")
	mustContain(t, k.run("delete", "workspace", "nested"), "deleted") // waits
	nested.refused(t, "there is no such logical cluster, or you may not enter it", "", "get", "namespaces")
}

func kubectlEvents(t *testing.T, k kubectl) {
	event := func(version, body string) string {
		return fmt.Sprintf(`{"apiVersion":%q,"kind":"Event","metadata":{"name":%q,"namespace":"default"},"reason":"Tested","type":"Normal",%s}`, version, strings.ReplaceAll(version, "/", "."), body)
	}
	k.in(t, event("v1", `"message":"by core","count":1,"firstTimestamp":"2026-01-02T03:04:05Z","lastTimestamp":"2026-01-02T03:04:05Z",
		"source":{"component":"e2e"},"involvedObject":{"apiVersion":"v1","kind":"ConfigMap","namespace":"default","name":"x"}`), "create", "-f", "-")
	k.in(t, event("events.k8s.io/v1", `"note":"by events","eventTime":"2026-01-02T03:04:05.000000Z","reportingController":"example.org/e2e","reportingInstance":"e2e-1",
		"action":"Testing","regarding":{"apiVersion":"v1","kind":"ConfigMap","namespace":"default","name":"x"}`), "create", "-f", "-")
	mustContain(t, k.run("events"), "LAST SEEN", "Tested", "ConfigMap/x", "by core", "by events")
	mustContain(t, k.run("events", "--for=configmap/x"), "by core")
	mustContain(t, k.run("get", "events"), "REASON", "by core", "by events")
	mustContain(t, k.run("get", "events.events.k8s.io", "-o", "jsonpath={.items[*].note}"), "by core", "by events")
	mustContain(t, k.run("get", "events", "--field-selector=involvedObject.name=x,reason=Tested", "-o", "name"), "event/v1", "event/events.k8s.io.v1")
}

func kubectlNamespaces(t *testing.T, k kubectl) {
	k.refused(t, `namespaces "none" not found`, configMap("x", "1"), "create", "-n", "none", "-f", "-")
	k.run("create", "namespace", "leaving")
	k.in(t, configMap("held", "1"), "create", "-n", "leaving", "-f", "-")
	k.run("patch", "cm", "held", "-n", "leaving", "--type=merge", "-p", `{"metadata":{"finalizers":["example.org/held"]}}`)
	k.run("delete", "namespace", "leaving", "--wait=false")
	mustContain(t, k.run("get", "namespace", "leaving"), "Terminating")
	k.soonRefused(t, "unable to create new content in namespace leaving because it is being terminated", configMap("x", "1"), "create", "-n", "leaving", "-f", "-")
	k.run("patch", "cm", "held", "-n", "leaving", "--type=json", "-p", `[{"op":"remove","path":"/metadata/finalizers"}]`)
	k.run("wait", "--for=delete", "namespace/leaving", "--timeout=60s")
	k.soonRefused(t, `namespaces "leaving" not found`, configMap("x", "1"), "create", "-n", "leaving", "-f", "-")
	for _, name := range []string{"default", "kube-system"} {
		k.refused(t, "may not be deleted", "", "delete", "namespace", name)
	}
}

func kubectlVersion(t *testing.T, k kubectl) {
	var versions struct {
		ServerVersion struct{ GitVersion string }
	}
	out := k.run("version", "-o", "json")
	if err := json.Unmarshal([]byte(out), &versions); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	mustContain(t, versions.ServerVersion.GitVersion, "v1.37", "regent")
	if strings.Contains(out, "skew") {
		t.Errorf("kubectl warns of a version skew: %s", out)
	}
}

func kubectlDryRuns(t *testing.T, k kubectl) {
	mustContain(t, k.in(t, configMap("dry", "1"), "create", "--dry-run=server", "-f", "-"), "created (server dry run)")
	k.refused(t, "not found", configMap("dry", "1"), "create", "-n", "none", "--dry-run=server", "-f", "-")
	if k.exists("cm/dry") {
		t.Error("a dry run created an object")
	}
	k.in(t, configMap("dry", "1"), "create", "-f", "-")
	k.run("delete", "cm", "dry", "--dry-run=server")
	k.run("patch", "cm", "dry", "--dry-run=server", "-p", `{"data":{"key":"2"}}`)
	if value := k.field("cm/dry", ".data.key"); value != "1" {
		t.Errorf("dry runs left %q", value)
	}
}
