package custom

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/warning"
)

// together returns the content by which the objects of contents that do not agree are shown in one list: as they are
// stored. It has no schema, so it neither prunes nor sets defaults, and no webhook, so no tenant's webhook can make the
// list fail. Any tenant may define a kind that others define: this must not take the list away from whoever reads all
// clusters.
func (s *Server) together(contents []*Content) (*Content, error) {
	out := apiextensionsv1.CustomResourceDefinitionSpec{
		Group: contents[0].spec.Group, Names: *contents[0].names, Scope: apiextensionsv1.ClusterScoped,
		Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter},
	}
	at := map[string]int{}
	for _, c := range contents {
		if c.spec.Scope == apiextensionsv1.NamespaceScoped {
			out.Scope = apiextensionsv1.NamespaceScoped
		}
		for _, v := range c.spec.Versions {
			n, ok := at[v.Name]
			if !ok {
				n = len(out.Versions)
				at[v.Name], out.Versions = n, append(out.Versions, schemaless(v.Name))
			}
			out.Versions[n].Served = out.Versions[n].Served || v.Served
		}
	}
	out.Versions[0].Storage = true // nothing is written by it
	return s.stored.Contents.Of(&out, &out.Names)
}

// schemaless returns a version in which objects keep all their fields.
func schemaless(name string) apiextensionsv1.CustomResourceDefinitionVersion {
	everything := true
	return apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Schema: &apiextensionsv1.CustomResourceValidation{
		OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &everything},
	}}
}

type kindsKey struct{}

// withAllOf has a view show the objects of all the kinds and scopes that contents give a resource, and warns that it
// shows them as they are stored.
func withAllOf(ctx context.Context, contents []*Content) context.Context {
	if len(contents) < 2 {
		return ctx
	}
	kinds := sets.New[string]()
	for _, c := range contents {
		kinds.Insert(collection(schema.GroupKind{Group: c.spec.Group, Kind: c.names.Kind}))
	}
	warning.AddWarning(ctx, "", fmt.Sprintf("logical clusters define %s.%s in %d different ways, so objects are shown as they are stored, "+
		"without defaults and conversions: to see one as its definition shows it, read it in its logical cluster", contents[0].names.Plural, contents[0].spec.Group, len(contents)))
	return context.WithValue(ctx, kindsKey{}, kinds)
}

// kindsIn returns the kinds that withAllOf has said, and nil if a view shows its own.
func kindsIn(ctx context.Context) sets.Set[string] {
	kinds, _ := ctx.Value(kindsKey{}).(sets.Set[string])
	return kinds
}
