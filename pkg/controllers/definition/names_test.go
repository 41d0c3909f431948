package definition

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

type names = apiextensionsv1.CustomResourceDefinitionNames

// wanting returns a definition that has got nothing yet.
func wanting(age int64, want names) definition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: want.Plural + ".example.com", CreationTimestamp: metav1.Unix(age, 0)},
		Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com", Names: want},
	}
}

func ofKind(kind string) names {
	return names{Plural: kind + "s", Singular: kind, Kind: "K" + kind, ListKind: "K" + kind + "List"}
}

// dueIn returns what is due in a group.
func dueIn(group []definition) []definition { return newLedger(group).due() }

// settle writes what is due until nothing is, and returns the group.
func settle(t interface{ Fatalf(string, ...any) }, group []definition) []definition {
	for range 10 {
		due := dueIn(group)
		if len(due) == 0 {
			return group
		}
		group = write(group, due...)
	}
	t.Fatalf("the names never settle")
	return nil
}

func write(group []definition, due ...definition) []definition {
	group = slices.Clone(group)
	for _, d := range due {
		group[slices.IndexFunc(group, func(o definition) bool { return o.Name == d.Name })] = d
	}
	return group
}

func reason(d definition, of apiextensionsv1.CustomResourceDefinitionConditionType) string {
	if c := apihelpers.FindCRDCondition(d, of); c != nil {
		return string(c.Status) + " " + c.Reason
	}
	return ""
}

func TestOfTwoThatWantANameTheOlderGetsIt(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*names)
		want   string
		keeps  func(names) bool
	}{
		"nothing in common": {func(*names) {}, "True NoConflicts", func(n names) bool { return n.Plural == "bs" && n.Kind == "Kb" }},
		"plural":            {func(n *names) { n.Plural = "as" }, "False PluralConflict", func(n names) bool { return n.Plural == "" && n.Kind == "Kb" }},
		"singular":          {func(n *names) { n.Singular = "a" }, "False SingularConflict", func(n names) bool { return n.Singular == "" }},
		"short name":        {func(n *names) { n.ShortNames = []string{"x", "as"} }, "False ShortNamesConflict", func(n names) bool { return n.ShortNames == nil }},
		"kind":              {func(n *names) { n.Kind = "Ka" }, "False KindConflict", func(n names) bool { return n.Kind == "" && n.Plural == "bs" }},
		"list kind":         {func(n *names) { n.ListKind = "KaList" }, "False ListKindConflict", func(n names) bool { return n.ListKind == "" }},
		"a kind like a list": {
			func(n *names) { n.Kind = "KaList" }, "False KindConflict", func(n names) bool { return n.Kind == "" },
		},
		"a kind like a resource": {func(n *names) { n.Kind = "as" }, "True NoConflicts", func(n names) bool { return n.Kind == "as" }},
	} {
		t.Run(name, func(t *testing.T) {
			want := ofKind("b")
			tc.change(&want)
			younger := wanting(2, want)
			younger.Name = "younger"
			group := settle(t, []definition{younger, wanting(1, ofKind("a"))})
			if got := reason(group[0], apiextensionsv1.NamesAccepted); got != tc.want {
				t.Errorf("names accepted: %s, want %s", got, tc.want)
			}
			if established := apihelpers.IsCRDConditionTrue(group[0], apiextensionsv1.Established); established != (tc.want == "True NoConflicts") {
				t.Errorf("established: %v", established)
			}
			if !tc.keeps(group[0].Status.AcceptedNames) {
				t.Errorf("got the names %+v", group[0].Status.AcceptedNames)
			}
			if d := cmp.Diff(ofKind("a"), group[1].Status.AcceptedNames); d != "" {
				t.Errorf("the older one has lost names:\n%s", d)
			}
		})
	}
}

func TestANameThatGetsFreeGoesToTheNext(t *testing.T) {
	second, third := wanting(2, ofKind("a")), wanting(3, ofKind("a"))
	second.Name, third.Name = "second", "third"
	group := settle(t, []definition{third, second, wanting(1, ofKind("a"))})
	group = settle(t, group[:2])
	if !apihelpers.IsCRDConditionTrue(group[1], apiextensionsv1.Established) || apihelpers.IsCRDConditionTrue(group[0], apiextensionsv1.Established) {
		t.Errorf("second: %s, third: %s", reason(group[1], apiextensionsv1.NamesAccepted), reason(group[0], apiextensionsv1.NamesAccepted))
	}
}

func TestWhatIsEstablishedStaysSo(t *testing.T) {
	group := settle(t, []definition{wanting(1, ofKind("a")), wanting(2, ofKind("b"))})
	changed := group[1].DeepCopy()
	changed.Spec.Names.ShortNames = []string{"a"}
	group = settle(t, write(group, changed))
	if got := reason(group[1], apiextensionsv1.NamesAccepted); got != "False ShortNamesConflict" {
		t.Errorf("names accepted: %s", got)
	}
	if !apihelpers.IsCRDConditionTrue(group[1], apiextensionsv1.Established) || group[1].Status.AcceptedNames.Plural != "bs" {
		t.Errorf("%+v", group[1].Status)
	}
	// The younger one was there first with another name of its own: age does not take it away.
	older := group[0].DeepCopy()
	older.Spec.Names.Singular = "b"
	group = settle(t, write(group, older))
	if got := group[1].Status.AcceptedNames.Singular; got != "b" {
		t.Errorf("the younger one has lost its singular: %q", got)
	}
}

func TestADefinitionOfKubernetesSaysWhetherItIsApproved(t *testing.T) {
	for annotation, want := range map[string]string{
		"":                           "False MissingAnnotation",
		"https://example.com/pull/1": "True ApprovedAnnotation",
		"unapproved, an experiment":  "False UnapprovedAnnotation",
		"nonsense":                   "False InvalidAnnotation",
	} {
		d := wanting(1, ofKind("a"))
		d.Spec.Group = "example.k8s.io"
		if annotation != "" {
			d.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: annotation}
		}
		if got := reason(settle(t, []definition{d})[0], apiextensionsv1.KubernetesAPIApprovalPolicyConformant); got != want {
			t.Errorf("%q: %s, want %s", annotation, got, want)
		}
	}
	if got := reason(settle(t, []definition{wanting(1, ofKind("a"))})[0], apiextensionsv1.KubernetesAPIApprovalPolicyConformant); got != "" {
		t.Errorf("one of another group: %s", got)
	}
}

// drawNames draws names from few, so that many collide.
func drawNames(r *rapid.T) names {
	resource, kind := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), rapid.SampledFrom([]string{"A", "B", "C", "D"})
	return names{
		Plural: resource.Draw(r, "plural"), Singular: resource.Draw(r, "singular"), ShortNames: rapid.SliceOfN(resource, 0, 2).Draw(r, "short"),
		Kind: kind.Draw(r, "kind"), ListKind: kind.Draw(r, "list kind"),
	}
}

// Definitions come, go and change their names, while a controller decides by a view that lacks the last changes. A
// write that was decided on an older state of its definition is refused, and all are decided again.
func TestNoTwoDefinitionsEverHaveTheSameName(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var group []definition
		made := 0
		for range rapid.IntRange(1, 12).Draw(r, "steps") {
			switch rapid.IntRange(0, 3).Draw(r, "what") {
			case 0, 1:
				made++
				d := wanting(rapid.Int64Range(1, 3).Draw(r, "age"), drawNames(r))
				d.Name = fmt.Sprint("d", made)
				group = append(group, d)
			case 2:
				if len(group) > 0 {
					n := rapid.IntRange(0, len(group)-1).Draw(r, "deleted")
					group = slices.Delete(slices.Clone(group), n, n+1)
				}
			case 3:
				if len(group) > 0 {
					n := rapid.IntRange(0, len(group)-1).Draw(r, "changed")
					d := group[n].DeepCopy()
					d.Spec.Names = drawNames(r)
					group = write(group, d)
				}
			}
			// Some of what is due is written, in any order.
			for _, d := range rapid.Permutation(dueIn(group)).Draw(r, "order") {
				if rapid.Bool().Draw(r, "written") {
					group = write(group, d)
					distinctIn(r, group)
				}
			}
		}
		distinctIn(r, settle(r, group))
	})
}

// distinctIn checks that no name is another definition's, too.
func distinctIn(t *rapid.T, group []definition) {
	resources, kinds := map[string]string{}, map[string]string{}
	for _, d := range group {
		for c := range claimsOf(&d.Status.AcceptedNames) {
			has := resources
			if c.kind {
				has = kinds
			}
			if other := has[c.name]; other != "" && other != d.Name {
				t.Fatalf("%s and %s both have %q", d.Name, other, c.name)
			}
			has[c.name] = d.Name
		}
	}
}
