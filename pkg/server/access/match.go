package access

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// allows reports whether the rule allows a request in the namespace that it was looked up for.
func (h ownRule) allows(a authorizer.Attributes) bool {
	return (h.everywhere || a.IsResourceRequest()) && matches(h.PolicyRule, a)
}

// matches reports whether a rule allows a request. The meaning of rules is Kubernetes': see "Using RBAC Authorization"
// in its documentation.
func matches(rule *rbacv1.PolicyRule, a authorizer.Attributes) bool {
	if !oneOf(rule.Verbs, a.GetVerb()) {
		return false
	}
	if !a.IsResourceRequest() {
		return slices.ContainsFunc(rule.NonResourceURLs, func(pattern string) bool { return matchesURL(pattern, a.GetPath()) })
	}
	return oneOf(rule.APIGroups, a.GetAPIGroup()) &&
		matchesResource(rule.Resources, a.GetResource(), a.GetSubresource()) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, a.GetName()))
}

// matchesResource takes "*" for everything, "pods" for pods without their subresources, "pods/log" for one of those,
// and "*/scale" for a subresource of all resources.
func matchesResource(resources []string, resource, subresource string) bool {
	return slices.ContainsFunc(resources, func(r string) bool {
		switch {
		case r == rbacv1.ResourceAll:
			return true
		case subresource == "":
			return r == resource
		}
		of, isOf := strings.CutSuffix(r, subresource)
		of, isPart := strings.CutSuffix(of, "/")
		return isOf && isPart && (of == "*" || of == resource)
	})
}

// matchesURL takes a path, or the beginning of one with "*" behind it.
func matchesURL(pattern, path string) bool {
	return pattern == path || strings.HasSuffix(pattern, "*") && strings.HasPrefix(path, strings.TrimRight(pattern, "*"))
}

func oneOf(set []string, value string) bool {
	return slices.Contains(set, "*") || slices.Contains(set, value)
}
