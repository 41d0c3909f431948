package apis

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/regent-project/regent/pkg/server/apis/resource"
	"github.com/regent-project/regent/test/etcdtest"
)

func TestTablesHaveKubectlsColumns(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	columns := map[string]string{
		"v1 namespaces":                 "Name Status Age",
		"v1 configmaps":                 "Name Data Age",
		"v1 secrets":                    "Name Type Data Age",
		"v1 serviceaccounts":            "Name Secrets Age",
		"v1 events":                     "Last Seen,Type,Reason,Object,Message",
		"events.k8s.io/v1 events":       "Last Seen,Type,Reason,Object,Message",
		"coordination.k8s.io/v1 leases": "Name Holder Age",
		"coordination.k8s.io/v1beta1 leasecandidates":       "Name LeaseName BinaryVersion EmulationVersion Strategy Age",
		"rbac.authorization.k8s.io/v1 roles":                "Name,Created At",
		"rbac.authorization.k8s.io/v1 clusterroles":         "Name,Created At",
		"rbac.authorization.k8s.io/v1 rolebindings":         "Name Role Age",
		"rbac.authorization.k8s.io/v1 clusterrolebindings":  "Name Role Age",
		"tenancy.kcp.io/v1alpha1 workspaces":                "Name Type Shard Phase URL Age",
		"core.kcp.io/v1alpha1 logicalclusters":              "Name Phase URL Age",
		"core.kcp.io/v1alpha1 shards":                       "Name,Region,URL,External URL,Cordoned,Age",
		"apiextensions.k8s.io/v1 customresourcedefinitions": "Name,Created At",
		"apis.kcp.io/v1alpha1 apiresourceschemas":           "Name Age",
		"apis.kcp.io/v1alpha2 apiexports":                   "Name Age",
		"apis.kcp.io/v1alpha2 apibindings":                  "Name Age Ready",
	}
	expectLines(t, s.served(t), columns, "columns")
	for resource, want := range columns {
		path := pathOf(resource)
		table := &metav1.Table{}
		s.get(t, "/clusters/aa"+path, "application/json;as=Table;v=v1;g=meta.k8s.io", table)
		var got []string
		for _, c := range table.ColumnDefinitions {
			if c.Priority == 0 {
				got = append(got, c.Name)
			}
		}
		separator := " "
		if strings.Contains(want, ",") {
			separator = ","
		}
		if strings.Join(got, separator) != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// wideColumns has for each resource with columns that only -o wide shows an object, and what they show of it.
var wideColumns = map[string]struct{ object, shows string }{
	"v1 events": {
		"{metadata: {name: e}, involvedObject: {namespace: default, kind: Pod, name: p, fieldPath: 'spec.containers{c}'}, source: {component: by, host: node}, firstTimestamp: '2016-01-01T00:00:00Z', lastTimestamp: '2026-01-01T00:00:00Z', count: 7}",
		"Subobject=spec.containers{c}; Source=by, node; First Seen=2016-01-01T00:00:00Z; Count=7; Name=e",
	},
	"events.k8s.io/v1 events": {
		"{metadata: {name: ev}, eventTime: '2017-01-01T00:00:00.000000Z', reportingController: by, reportingInstance: node, action: a, reason: r, type: Normal, regarding: {namespace: default, kind: Pod, name: p, fieldPath: 'spec.containers{d}'}, series: {count: 9, lastObservedTime: '2026-01-01T00:00:00.000000Z'}}",
		"Subobject=spec.containers{d}; Source=by, node; First Seen=2017-01-01T00:00:00Z; Count=9; Name=ev",
	},
	"rbac.authorization.k8s.io/v1 rolebindings": {
		"{metadata: {name: b}, roleRef: {kind: Role, name: r}, subjects: [{kind: User, name: ann}, {kind: Group, name: devs}, {kind: User, name: bob}, {kind: ServiceAccount, namespace: ns, name: bot}]}",
		"Users=ann, bob; Groups=devs; ServiceAccounts=ns/bot",
	},
	"rbac.authorization.k8s.io/v1 clusterrolebindings": {
		"{metadata: {name: b}, roleRef: {kind: ClusterRole, name: r}, subjects: [{kind: User, name: ann}, {kind: Group, name: devs}, {kind: Group, name: ops}, {kind: ServiceAccount, namespace: ns, name: bot}]}",
		"Users=ann; Groups=devs, ops; ServiceAccounts=ns/bot",
	},
	"apiextensions.k8s.io/v1 customresourcedefinitions": {
		"{metadata: {name: ws.example.com}, spec: {group: example.com, scope: Namespaced, names: {plural: ws, kind: W}, versions: [{name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}, {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}",
		"Group=example.com; Scope=Namespaced; Stored=v1",
	},
}

func TestWideColumnsShowWhatTheirHeadersSay(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil)
	served := s.served(t)
	for resource := range wideColumns {
		if _, ok := served[resource]; !ok {
			t.Errorf("%s is not served", resource)
		}
	}
	for resource := range served {
		version, name, _ := strings.Cut(resource, " ")
		gv, err := schema.ParseGroupVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		of := wideColumns[resource]
		path := "/clusters/aa" + pathOf(resource)
		if of.object != "" {
			var client dynamic.ResourceInterface = s.dynamic(t, "aa").Resource(gv.WithResource(name))
			if namespacedResource(name) {
				client = s.dynamic(t, "aa").Resource(gv.WithResource(name)).Namespace("default")
			}
			if err := apply(t, client, gv, name, validationCase{create: of.object}); err != nil {
				t.Fatalf("%s: %v", resource, err)
			}
			path += "?fieldSelector=metadata.name=" + regexp.MustCompile(`name: ([a-z.]+)`).FindStringSubmatch(of.object)[1]
		}
		table := &metav1.Table{}
		s.get(t, path, "application/json;as=Table;v=v1;g=meta.k8s.io", table)
		var shows []string
		for n, c := range table.ColumnDefinitions {
			if c.Priority == 0 {
				continue
			}
			value := "?"
			if of.object != "" && len(table.Rows) == 1 {
				value = fmt.Sprint(table.Rows[0].Cells[n])
			}
			if strings.HasSuffix(c.Name, "Seen") {
				value = timeOf(value, of.shows)
			}
			shows = append(shows, c.Name+"="+value)
		}
		if got := strings.Join(shows, "; "); got != of.shows {
			t.Errorf("%s shows %q, want %q", resource, got, of.shows)
		}
	}
}

// timeOf returns the time in want that an age is of, if there is one.
func timeOf(age, want string) string {
	for _, text := range regexp.MustCompile(`[0-9]{4}-[0-9T:-]+Z`).FindAllString(want, -1) {
		if at, err := time.Parse(time.RFC3339, text); err == nil && resource.Since(at) == age {
			return text
		}
	}
	return age
}

// What a shard that is down has said last is not what is so now. What the Workspace's own shard knows stays.
func TestWorkspacesTellOfTheirShard(t *testing.T) {
	s := startShard(t, etcdtest.Start(t), nil) // which does not hear "down"
	client := s.dynamic(t, "aa").Resource(tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces"))
	want := map[string]string{}
	for n, c := range []struct{ shard, cluster, phase, shows string }{
		{"", "", "Scheduling", " Scheduling"},
		{"", "x1", "Ready", "here Ready"},
		{"here", "x1", "Ready", "here Ready"},
		{"eu1", "x1", "Ready", "eu1 Ready"},
		{"down", "x1", "Ready", "down Unreachable"},
		{"down", "x1", "Initializing", "down Unreachable"},
		{"down", "x1", "Unavailable", "down Unreachable"},
		{"down", "x1", "Scheduling", "down Scheduling"},
		{"down", "x1", "Deleting", "down Deleting"},
	} {
		name := fmt.Sprintf("w%d", n)
		made := validationCase{create: fmt.Sprintf("{metadata: {name: %s, labels: {regent.dev/shard: '%s'}}, spec: {cluster: '%s'}}", name, c.shard, c.cluster)}
		if err := apply(t, client, tenancyv1alpha1.SchemeGroupVersion, "workspaces", made); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Patch(t.Context(), name, types.MergePatchType, []byte(`{"status":{"phase":"`+c.phase+`"}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		want[name] = c.shows
	}
	table := &metav1.Table{}
	s.get(t, "/clusters/aa/apis/tenancy.kcp.io/v1alpha1/workspaces", "application/json;as=Table;v=v1;g=meta.k8s.io", table)
	if len(table.Rows) != len(want) {
		t.Errorf("%d rows, want %d", len(table.Rows), len(want))
	}
	for _, row := range table.Rows {
		name := fmt.Sprint(row.Cells[0])
		if got := fmt.Sprintf("%s %s", row.Cells[2], row.Cells[3]); got != want[name] {
			t.Errorf("%s: %q, want %q", name, got, want[name])
		}
	}
}

// pathOf returns the path of a resource, as s.served names it.
func pathOf(resource string) string {
	if name, core := strings.CutPrefix(resource, "v1 "); core {
		return "/api/v1/" + name
	}
	return "/apis/" + strings.Replace(resource, " ", "/", 1)
}
