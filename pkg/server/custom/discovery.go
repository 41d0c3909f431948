package custom

import (
	"cmp"
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/discovery"
)

// What can be done with custom objects, with those of a definition that is being deleted, and with their subresources.
var (
	allVerbs         = metav1.Verbs{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
	terminatingVerbs = metav1.Verbs{"delete", "deletecollection", "get", "list", "watch"}
	subresourceVerbs = metav1.Verbs{"get", "patch", "update"}
)

// served is a custom resource in one of its versions, as clients discover it.
type served struct {
	metav1.APIResource
	gv             schema.GroupVersion
	hasStatus      bool
	hasScale       bool
	storageVersion string
}

// served returns the definition in each version that it serves, the preferred one first.
func (d *Definition) served() (out []served) {
	verbs := allVerbs
	if d.Terminating {
		verbs = terminatingVerbs
	}
	var storageVersion string
	for _, v := range d.spec.Versions {
		if v.Storage {
			storageVersion = discovery.StorageVersionHash(d.spec.Group, v.Name, d.spec.Names.Kind)
		}
	}
	for _, v := range d.spec.Versions {
		if !v.Served {
			continue
		}
		s := served{
			APIResource: metav1.APIResource{
				Name: d.names.Plural, SingularName: d.names.Singular, Kind: d.names.Kind, ShortNames: d.names.ShortNames, Categories: d.names.Categories,
				Namespaced: d.spec.Scope == apiextensionsv1.NamespaceScoped, Verbs: verbs,
			},
			gv: schema.GroupVersion{Group: d.spec.Group, Version: v.Name}, storageVersion: storageVersion,
		}
		if sub, err := apihelpers.GetSubresourcesForVersion(&apiextensionsv1.CustomResourceDefinition{Spec: *d.spec}, v.Name); err == nil && sub != nil {
			s.hasStatus, s.hasScale = sub.Status != nil, sub.Scale != nil
		}
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(a, b served) int {
		return version.CompareKubeAwareVersionStrings(b.gv.Version, a.gv.Version)
	})
	return out
}

// resources returns the entries of a version's list of resources.
func (s served) resources() []metav1.APIResource {
	main := s.APIResource
	main.StorageVersionHash = s.storageVersion
	out := []metav1.APIResource{main}
	if s.hasStatus {
		out = append(out, metav1.APIResource{Name: s.Name + "/status", Namespaced: s.Namespaced, Kind: s.Kind, Verbs: subresourceVerbs})
	}
	if s.hasScale {
		out = append(out, metav1.APIResource{
			Group: autoscalingv1.GroupName, Version: "v1", Kind: "Scale", Name: s.Name + "/scale", Namespaced: s.Namespaced, Verbs: subresourceVerbs,
		})
	}
	return out
}

// aggregated returns the entry of the document that has all resources.
func (s served) aggregated() apidiscoveryv2.APIResourceDiscovery {
	kind := metav1.GroupVersionKind{Group: s.gv.Group, Version: s.gv.Version, Kind: s.Kind}
	out := apidiscoveryv2.APIResourceDiscovery{
		Resource: s.Name, SingularResource: s.SingularName, ResponseKind: &kind, Scope: apidiscoveryv2.ScopeCluster,
		Verbs: s.Verbs, ShortNames: s.ShortNames, Categories: s.Categories,
	}
	if s.Namespaced {
		out.Scope = apidiscoveryv2.ScopeNamespace
	}
	if s.hasStatus {
		out.Subresources = append(out.Subresources, apidiscoveryv2.APISubresourceDiscovery{Subresource: "status", ResponseKind: &kind, Verbs: subresourceVerbs})
	}
	if s.hasScale {
		out.Subresources = append(out.Subresources, apidiscoveryv2.APISubresourceDiscovery{
			Subresource: "scale", Verbs: subresourceVerbs,
			ResponseKind: &metav1.GroupVersionKind{Group: autoscalingv1.GroupName, Version: "v1", Kind: "Scale"},
		})
	}
	return out
}

// group is an API group that definitions make.
type group struct {
	name string
	// versions are in the order in which clients should prefer them.
	versions []groupVersion
}

type groupVersion struct {
	schema.GroupVersion
	resources []served
	of        []*Definition // each that serves it
}

// groupsOf returns the groups of definitions, by name.
func groupsOf(definitions []*Definition) []group {
	versions, of := map[schema.GroupVersion][]served{}, map[schema.GroupVersion][]*Definition{}
	var order []schema.GroupVersion
	for _, d := range definitions {
		for _, s := range d.served() {
			if versions[s.gv] == nil {
				order = append(order, s.gv)
			}
			versions[s.gv], of[s.gv] = append(versions[s.gv], s), append(of[s.gv], d)
		}
	}
	slices.SortFunc(order, func(a, b schema.GroupVersion) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), version.CompareKubeAwareVersionStrings(b.Version, a.Version))
	})
	var out []group
	for _, gv := range order {
		if len(out) == 0 || out[len(out)-1].name != gv.Group {
			out = append(out, group{name: gv.Group})
		}
		last := &out[len(out)-1]
		last.versions = append(last.versions, groupVersion{gv, versions[gv], of[gv]})
	}
	return out
}

// entry returns the group's entry in the list of groups.
func (g group) entry() metav1.APIGroup {
	out := metav1.APIGroup{Name: g.name}
	for _, v := range g.versions {
		out.Versions = append(out.Versions, metav1.GroupVersionForDiscovery{GroupVersion: v.String(), Version: v.Version})
	}
	out.PreferredVersion = out.Versions[0]
	return out
}

// aggregated returns the group's entry in the document that has all resources.
func (g group) aggregated() apidiscoveryv2.APIGroupDiscovery {
	out := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.name}}
	for _, v := range g.versions {
		entry := apidiscoveryv2.APIVersionDiscovery{Version: v.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
		for _, r := range v.resources {
			entry.Resources = append(entry.Resources, r.aggregated())
		}
		out.Versions = append(out.Versions, entry)
	}
	return out
}
