package bundles

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"

	"github.com/regent-project/regent/pkg/server/bundle"
)

// bundleWith returns a bundle of root:team with objects, by key.
func bundleWith(t *testing.T, objects map[string]string) *bundle.Bundle {
	t.Helper()
	var file bytes.Buffer
	w, err := bundle.NewWriter(&file, bundle.Header{Path: "root:team", Cluster: "2xk"})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		o := bundle.Object{Key: key, Revision: 1}
		switch text := objects[key]; text {
		case "deleted":
			o.Deleted = true
		case "unreadable":
			o.Unreadable = "by the test"
		case "sealed":
			o.Sealed = []byte("age-encryption.org/v1\n")
		default:
			o.Object = json.RawMessage(text)
		}
		if err := w.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	all, err := bundle.Open(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

// configMap is an object in JSON, with what the server writes of it.
func configMap(name, uid, value string, more ...string) string {
	metadata := fmt.Sprintf(`"name":%q,"namespace":"app","uid":%q,"creationTimestamp":"2026-01-01T00:00:00Z","generation":1,"annotations":{"kcp.io/cluster":"2xk"}`, name, uid)
	for _, m := range more {
		metadata += "," + m
	}
	return fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{%s},"data":{"value":%q}}`, metadata, value)
}

func ownedBy(uid string) string {
	return fmt.Sprintf(`"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]`, uid)
}

const (
	inApp     = "core/configmaps/app/"
	workspace = `{"kind":"Workspace","apiVersion":"tenancy.kcp.io/v1alpha1","metadata":{"name":"w","uid":"w1"},"spec":{"cluster":"c"}}`
)

// What is the same is left alone, what is missing comes back, and only with Prune something goes.
func TestARestoreDoesWhatIsNeededAndNoMore(t *testing.T) {
	for name, c := range map[string]struct {
		then, now map[string]string
		options   RestoreOptions
		want      Restored
	}{
		"nothing has changed": {
			then: map[string]string{inApp + "a": configMap("a", "1", "x"), bundle.LogicalClusterKey: `{"kind":"LogicalCluster","apiVersion":"core.kcp.io/v1alpha1"}`},
			now:  map[string]string{inApp + "a": configMap("a", "1", "x", `"labels":{}`), bundle.LogicalClusterKey: `{"kind":"LogicalCluster","apiVersion":"core.kcp.io/v1alpha1","spec":{}}`},
			want: Restored{Same: 1},
		},
		"deleted, changed, made anew with other content, and the same with another uid": {
			then: map[string]string{inApp + "a": configMap("a", "1", "x"), inApp + "b": configMap("b", "2", "x"), inApp + "c": configMap("c", "3", "x"), inApp + "d": configMap("d", "4", "x")},
			now:  map[string]string{inApp + "b": configMap("b", "2", "y"), inApp + "c": configMap("c", "33", "y"), inApp + "d": configMap("d", "44", "x")},
			want: Restored{Same: 1, Create: []string{inApp + "a"}, Update: []string{inApp + "b", inApp + "c"}},
		},
		"an owner with another uid is the same owner": {
			then: map[string]string{inApp + "owned": configMap("owned", "1", "x", ownedBy("2")), inApp + "owner": configMap("owner", "2", "x")},
			now:  map[string]string{inApp + "owned": configMap("owned", "1", "x", ownedBy("22")), inApp + "owner": configMap("owner", "22", "x")},
			want: Restored{Same: 2},
		},
		"what is new stays": {
			then: map[string]string{}, now: map[string]string{inApp + "new": configMap("new", "1", "x")},
		},
		"what is new goes, but for workspaces and what the server writes": {
			then:    map[string]string{},
			now:     map[string]string{inApp + "new": configMap("new", "1", "x"), inApp + "kube-root-ca.crt": configMap("kube-root-ca.crt", "2", "x"), bundle.WorkspaceKeys + "w": workspace},
			options: RestoreOptions{Prune: true},
			want:    Restored{Delete: []string{inApp + "new"}, Report: Report{Left: []Leftover{{"workspaces.tenancy.kcp.io", 1, "they are new, and stay: delete them by regent ws delete"}}}},
		},
		"a workspace that is gone is not made by a line of its parent": {
			then: map[string]string{bundle.WorkspaceKeys + "w": workspace}, now: map[string]string{},
			want: Restored{Report: Report{Left: []Leftover{{"workspaces.tenancy.kcp.io", 1, "they are gone with all that was in them: import a bundle of each"}}}},
		},
		"what every workspace has, deleted since, and deleted then": {
			then:    map[string]string{inApp + "then": "deleted"},
			now:     map[string]string{inApp + "since": "deleted", inApp + "then": configMap("then", "1", "x")},
			options: RestoreOptions{Prune: true},
			want:    Restored{Delete: []string{inApp + "then"}, Report: Report{Left: []Leftover{{"configmaps", 1, "every workspace has them, and they were deleted since: make them again"}}}},
		},
		"what is being deleted is waited for by the user": {
			then: map[string]string{inApp + "a": configMap("a", "1", "x")},
			now:  map[string]string{inApp + "a": configMap("a", "1", "x", `"deletionTimestamp":"2026-01-01T00:00:00Z"`)},
			want: Restored{Report: Report{Left: []Leftover{{"configmaps", 1, "they are being deleted: restore again once they are gone"}}}},
		},
		"what could not be read": {
			then: map[string]string{inApp + "a": "unreadable"}, now: map[string]string{},
			want: Restored{Report: Report{Refused: []Note{{"root:team", inApp + "a", "it could not be read when it was exported: by the test"}}}},
		},
		"only one, and what is sealed beside it": {
			then:    map[string]string{inApp + "a": configMap("a", "1", "x"), inApp + "ab": configMap("ab", "2", "x"), "core/secrets/app/s": "sealed"},
			now:     map[string]string{},
			options: RestoreOptions{Only: []string{inApp + "a"}},
			want:    Restored{Create: []string{inApp + "a"}},
		},
		"only those whose keys begin so": {
			then:    map[string]string{inApp + "a": configMap("a", "1", "x"), "core/configmaps/apps/a": configMap("a", "2", "x")},
			now:     map[string]string{},
			options: RestoreOptions{Only: []string{inApp}},
			want:    Restored{Create: []string{inApp + "a"}},
		},
		"only a namespace": {
			then: map[string]string{
				inApp + "a": configMap("a", "1", "x"), "core/namespaces/app": `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"app","uid":"3"}}`,
				"core/namespaces/other": `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"other","uid":"4"}}`, "core/configmaps/other/app": configMap("app", "5", "x"),
				"custom/example.com/app/x": `{"kind":"app","apiVersion":"example.com/v1","metadata":{"name":"x","uid":"6"}}`, "custom/example.com/Widget/app/w": `{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"w","uid":"7"}}`,
			},
			now:     map[string]string{},
			options: RestoreOptions{Namespace: "app"},
			want:    Restored{Create: []string{inApp + "a", "core/namespaces/app", "custom/example.com/Widget/app/w"}},
		},
	} {
		c.options.Plan = true
		got, err := Restore(t.Context(), nil, bundleWith(t, c.then), bundleWith(t, c.now), logicalcluster.NewPath("root:team"), c.options)
		if err != nil || !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%s: %+v, %v, want %+v", name, *got, err, c.want)
		}
	}
}

func TestWhatIsSealedForOthersIsNotRestored(t *testing.T) {
	then, now := bundleWith(t, map[string]string{"core/secrets/app/s": "sealed"}), bundleWith(t, nil)
	if _, err := Restore(t.Context(), nil, then, now, logicalcluster.NewPath("root:team"), RestoreOptions{Plan: true}); err == nil {
		t.Error("it is")
	}
}
