package clusters_test

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/regent-project/regent/pkg/clusters"
)

func TestWhoCreatesAWorkspaceIsToBeItsAdministrator(t *testing.T) {
	home := map[string][]string{clusters.IdentityClusterExtra: {"x7"}, "other": {"secret"}}
	for annotation, want := range map[string]rbacv1.Subject{
		clusters.EncodeCreator("ann", nil):                           {APIGroup: rbacv1.GroupName, Kind: "User", Name: "ann"},
		clusters.EncodeCreator("system:serviceaccount:ci:bob", home): {APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:cluster:x7:ci:bob"},
		`{"username":"ann","groups":["system:masters"]}`:             {APIGroup: rbacv1.GroupName, Kind: "User", Name: "ann"},
	} {
		if got, err := clusters.CreatorOf(annotation); err != nil || got != want {
			t.Errorf("%s: %+v (%v), want %+v", annotation, got, err, want)
		}
		if strings.Contains(annotation, "secret") {
			t.Errorf("%s tells more than it must", annotation)
		}
	}
	// An account of that name in the new cluster would be another one.
	for _, bad := range []string{"", "ann", "{}", `{"username":""}`, `{"username":"system:serviceaccount:ci:bob"}`} {
		if got, err := clusters.CreatorOf(bad); err == nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}
