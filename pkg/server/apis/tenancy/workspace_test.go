package tenancy

import (
	"strings"
	"testing"

	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func mountOf(name string) *tenancyv1alpha1.Mount {
	return &tenancyv1alpha1.Mount{Reference: tenancyv1alpha1.ObjectReference{APIVersion: "v1", Kind: "K", Name: name}}
}

// An older server has accepted what is refused now. Such objects can be written, as long as that stays.
func TestWhatIsStoredCanBeWrittenAgain(t *testing.T) {
	elsewhere := &tenancyv1alpha1.WorkspaceTypeReference{Name: "tenant", Path: "root:acme"}
	located := &tenancyv1alpha1.WorkspaceLocation{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
	for name, c := range map[string]struct {
		old, now tenancyv1alpha1.WorkspaceSpec
		refused  string
		warns    bool
	}{
		"a mount stays":    {old: tenancyv1alpha1.WorkspaceSpec{Mount: mountOf("a")}, now: tenancyv1alpha1.WorkspaceSpec{Mount: mountOf("a")}},
		"a mount goes":     {old: tenancyv1alpha1.WorkspaceSpec{Mount: mountOf("a")}, refused: "mount is immutable"},
		"a mount changes":  {old: tenancyv1alpha1.WorkspaceSpec{Mount: mountOf("a")}, now: tenancyv1alpha1.WorkspaceSpec{Mount: mountOf("b")}, refused: "mount is immutable"},
		"a mount comes":    {now: tenancyv1alpha1.WorkspaceSpec{Mount: mountOf("a")}, refused: "spec.mount: Forbidden"},
		"a type stays":     {old: tenancyv1alpha1.WorkspaceSpec{Type: elsewhere}, now: tenancyv1alpha1.WorkspaceSpec{Type: elsewhere}},
		"a type comes":     {now: tenancyv1alpha1.WorkspaceSpec{Type: elsewhere}, refused: "spec.type: Invalid"},
		"a location comes": {now: tenancyv1alpha1.WorkspaceSpec{Location: located}},
		"a location comes late": {
			old: tenancyv1alpha1.WorkspaceSpec{Cluster: "x7"}, now: tenancyv1alpha1.WorkspaceSpec{Cluster: "x7", Location: located}, warns: true,
		},
		"a location stays": {
			old: tenancyv1alpha1.WorkspaceSpec{Cluster: "x7", Location: located}, now: tenancyv1alpha1.WorkspaceSpec{Cluster: "x7", Location: located},
		},
	} {
		t.Run(name, func(t *testing.T) {
			old, now := &tenancyv1alpha1.Workspace{Spec: c.old}, &tenancyv1alpha1.Workspace{Spec: c.now}
			errs := validateWorkspaceUpdate(now, old)
			if c.refused == "" && len(errs) > 0 || c.refused != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), c.refused)) {
				t.Errorf("refused: %v, want %q", errs, c.refused)
			}
			if warnings := warn(now, old); len(warnings) > 0 != c.warns {
				t.Errorf("warnings: %q", warnings)
			}
		})
	}
}

// kcp's tools name the types that every kcp has, with and without a path.
func TestTheTypesOfKCPAreAcceptedWithAWarning(t *testing.T) {
	for text, warns := range map[string]bool{
		"universal": false, "root:universal": false, "organization": true, "root:organization": true, "root:team": true, "home": true,
	} {
		w := &tenancyv1alpha1.Workspace{Spec: tenancyv1alpha1.WorkspaceSpec{Type: &tenancyv1alpha1.WorkspaceTypeReference{Name: tenancyv1alpha1.WorkspaceTypeName(text)}}}
		if path, name, ok := strings.Cut(text, ":"); ok {
			w.Spec.Type = &tenancyv1alpha1.WorkspaceTypeReference{Path: path, Name: tenancyv1alpha1.WorkspaceTypeName(name)}
		}
		if errs := refuseNew(w, nil); len(errs) > 0 {
			t.Errorf("%s: %v", text, errs)
		}
		warnings := warn(w, nil)
		if len(warnings) > 0 != warns || warns && !strings.Contains(warnings[0], text) {
			t.Errorf("%s: warnings %q", text, warnings)
		}
		if again := warn(w, w); len(again) > 0 {
			t.Errorf("%s stays: %q", text, again)
		}
	}
}
