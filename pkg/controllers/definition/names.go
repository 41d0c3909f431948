package definition

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// claim is a name of resources or of kinds, which are apart.
type claim struct {
	kind bool
	name string
}

// claims are names of a group, with how many definitions have them.
type claims map[claim]int

// add returns the names that nobody had before.
func (c claims) add(names *apiextensionsv1.CustomResourceDefinitionNames) (fresh []claim) {
	for name := range claimsOf(names) {
		if c[name]++; c[name] == 1 {
			fresh = append(fresh, name)
		}
	}
	return fresh
}

// remove returns the names that nobody has any more.
func (c claims) remove(names *apiextensionsv1.CustomResourceDefinitionNames) (free []claim) {
	for name := range claimsOf(names) {
		if c[name]--; c[name] == 0 {
			delete(c, name)
			free = append(free, name)
		}
	}
	return free
}

func claimsOf(n *apiextensionsv1.CustomResourceDefinitionNames) map[claim]struct{} {
	out := make(map[claim]struct{}, 4+len(n.ShortNames))
	put := func(kind bool, names ...string) {
		for _, name := range names {
			if name != "" {
				out[claim{kind, name}] = struct{}{}
			}
		}
	}
	put(false, n.Plural, n.Singular)
	put(false, n.ShortNames...)
	put(true, n.Kind, n.ListKind)
	return out
}

// resolve returns the definition with what its names come to, where others have the names that are taken. who says who
// has one. resolve returns nil if the status says so already.
func resolve(d definition, taken claims, who func(claim) string) definition {
	out := *d // all but the status is shared, and not changed
	out.Status.Conditions = slices.Clone(d.Status.Conditions)
	give(&out, taken, who)
	if equality.Semantic.DeepEqual(out.Status, d.Status) {
		return nil
	}
	return out.DeepCopy()
}

// settled reports whether a definition has all that it wants, and its status says so. Then nothing is due, whatever
// others have.
func settled(d definition) bool { return resolve(d, nil, nil) == nil }

// give gives a definition the names that it wants and that are free. If it has got all of them once, it is established,
// and stays so.
func give(d definition, taken claims, who func(claim) string) {
	want, got := d.Spec.Names, &d.Status.AcceptedNames
	accepted := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, Reason: "NoConflicts", Message: "no conflicts found",
	}
	one := func(want string, got *string, kind bool, reason string) {
		if want == *got || taken[claim{kind, want}] == 0 {
			*got = want
			return
		}
		accepted.Status, accepted.Reason = apiextensionsv1.ConditionFalse, reason
		accepted.Message = fmt.Sprintf("%q is already in use by %s: choose another name, or delete that", want, who(claim{kind, want}))
	}
	one(want.Plural, &got.Plural, false, "PluralConflict")
	one(want.Singular, &got.Singular, false, "SingularConflict")
	inUse := slices.DeleteFunc(slices.Clone(want.ShortNames), func(n string) bool { return taken[claim{false, n}] == 0 || slices.Contains(got.ShortNames, n) })
	if len(inUse) == 0 {
		got.ShortNames = want.ShortNames
	} else {
		accepted.Status, accepted.Reason = apiextensionsv1.ConditionFalse, "ShortNamesConflict"
		accepted.Message = fmt.Sprintf("%s already in use by %s: choose other names, or delete that", strings.Join(inUse, ", "), who(claim{false, inUse[0]}))
	}
	one(want.Kind, &got.Kind, true, "KindConflict")
	one(want.ListKind, &got.ListKind, true, "ListKindConflict")
	got.Categories = want.Categories

	apihelpers.SetCRDCondition(d, accepted)
	apihelpers.SetCRDCondition(d, establish(d, accepted.Status))
	if says := approved(d); says != nil {
		apihelpers.SetCRDCondition(d, *says)
	} else {
		apihelpers.RemoveCRDCondition(d, apiextensionsv1.KubernetesAPIApprovalPolicyConformant)
	}
}

// approved returns the condition that says whether a definition in one of Kubernetes' groups has the approval that
// these need. It is nil for other groups.
func approved(d definition) *apiextensionsv1.CustomResourceDefinitionCondition {
	if !apihelpers.IsProtectedCommunityGroup(d.Spec.Group) {
		return nil
	}
	out := apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.KubernetesAPIApprovalPolicyConformant, Status: apiextensionsv1.ConditionFalse}
	state, why := apihelpers.GetAPIApprovalState(d.Annotations)
	out.Message = why
	switch state {
	case apihelpers.APIApproved:
		out.Status, out.Reason = apiextensionsv1.ConditionTrue, "ApprovedAnnotation"
	case apihelpers.APIApprovalBypassed:
		out.Reason = "UnapprovedAnnotation"
	case apihelpers.APIApprovalMissing:
		out.Reason = "MissingAnnotation"
	default:
		out.Reason = "InvalidAnnotation"
	}
	return &out
}

func establish(d definition, accepted apiextensionsv1.ConditionStatus) apiextensionsv1.CustomResourceDefinitionCondition {
	if old := apihelpers.FindCRDCondition(d, apiextensionsv1.Established); old != nil && old.Status == apiextensionsv1.ConditionTrue {
		return *old
	}
	out := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse, Reason: "NotAccepted", Message: "not all names are accepted",
	}
	if accepted == apiextensionsv1.ConditionTrue {
		out.Status, out.Reason, out.Message = apiextensionsv1.ConditionTrue, "InitialNamesAccepted", "the initial names have been accepted"
	}
	return out
}
