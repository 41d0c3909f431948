package fill

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/test/releases"
)

// unfilled are fields that no object has, with the reason.
var unfilled = map[string]string{
	"APIBindingStatus.appliedPermissionClaims":             "claims are not granted",
	"APIExportSpec.maximalPermissionPolicy":                "it is refused",
	"APIExportStatus.virtualWorkspaces":                    "there are none",
	"APIResourceSchemaSpec.nameValidation":                 "it is refused",
	"CustomResourceDefinitionCondition.observedGeneration": "nobody sets it",
	"CustomResourceDefinitionSpec.preserveUnknownFields":   "true is refused, and false is not stored",
	"CustomResourceDefinitionStatus.observedGeneration":    "nobody sets it",
	"JSONSchemaProps.$ref":                                 "it is refused",
	"JSONSchemaProps.$schema":                              "it is refused",
	"JSONSchemaProps.additionalItems":                      "it is refused",
	"JSONSchemaProps.definitions":                          "it is refused",
	"JSONSchemaProps.dependencies":                         "it is refused",
	"JSONSchemaProps.id":                                   "it is refused",
	"JSONSchemaProps.patternProperties":                    "it is refused",
	"JSONSchemaProps.uniqueItems":                          "true is refused, and false is not stored",
	"LogicalClusterOwner.namespace":                        "Workspaces are in no namespace",
	"LogicalClusterSpec.directlyDeletable":                 "it is refused",
	"LogicalClusterSpec.initializers":                      "the release's controllers copy them of nothing: kcp's initializers write to Workspaces of types, and there are no types",
	"LogicalClusterSpec.terminators":                       "the same",
	"LogicalClusterStatus.conditions":                      "nothing is wrong with a cluster",
	"LogicalClusterStatus.initializers":                    "as those of the spec",
	"LogicalClusterStatus.terminators":                     "the same",
	"ObjectMeta.selfLink":                                  "Kubernetes sets it no more",
	"ResourceSchemaStorage.virtual":                        "it is refused",
	"Secret.stringData":                                    "it is stored as data",
	"ShardStatus.conditions":                               "nobody sets any",
	"WebhookClientConfig.service":                          "there are no Services",
	"WorkspaceSpec.mount":                                  "it is refused",
	"WorkspaceStatus.initializers":                         "as those of a LogicalCluster",
	"WorkspaceStatus.terminators":                          "the same",
}

// hasFields finds fields of what is served that no object has. A type that is used at several places has each of its
// fields at one of them.
func (f *filled) hasFields(served releases.Served) {
	f.Helper()
	byKind := map[schema.GroupVersionKind][]any{}
	versions := map[string]string{} // and where their documents are
	for _, o := range served {
		gv := o.GVR().GroupVersion()
		kind := gv.WithKind(fmt.Sprint(o.Object["kind"]))
		byKind[kind] = append(byKind[kind], o.Object)
		if versions[o.Version] = "apis/" + o.Version; gv.Group == "" {
			versions[o.Version] = "api/" + o.Version
		}
	}
	has := map[string]bool{} // by type and field
	for _, version := range slices.Sorted(maps.Keys(versions)) {
		status, body := f.replicas[0].Get("/clusters/root:user/openapi/v3/" + versions[version])
		d := document{has: has}
		if err := json.Unmarshal([]byte(body), &d); status != 200 || err != nil {
			f.Errorf("the document of %s: %d, %v", version, status, err)
			continue
		}
		for name, s := range d.Components.Schemas {
			for _, of := range s.Kinds {
				gvk := schema.GroupVersionKind(of)
				if objects := byKind[gvk]; gvk.GroupVersion().String() == version && len(objects) > 0 {
					d.walk(s, objects, short(name))
				}
			}
		}
	}
	if len(has) < 200 {
		f.Errorf("the documents have %d fields, which cannot be", len(has))
	}
	for _, field := range slices.Sorted(maps.Keys(has)) {
		switch is, reason := has[field], unfilled[field]; {
		case !is && reason == "":
			f.Errorf("no object has %s: fill it in in objects, or say in unfilled why not", field)
		case is && reason != "":
			f.Errorf("%s is in unfilled, and an object has it", field)
		}
	}
	for field := range unfilled {
		if _, ok := has[field]; !ok {
			f.Errorf("%s is in unfilled, and there is no such field", field)
		}
	}
}

// short is a type's name without the package of Go.
func short(name string) string { return name[strings.LastIndex(name, ".")+1:] }

// document is what is read of OpenAPI.
type document struct {
	Components struct {
		Schemas map[string]*part
	}
	has map[string]bool
}

type part struct {
	Kinds []metav1.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
	Ref   string                    `json:"$ref"`

	AllOf                []*part
	Properties           map[string]*part
	Items                *part
	AdditionalProperties json.RawMessage
}

// walk notes of each field of a type whether one of the values has it.
func (d document) walk(s *part, values []any, of string) {
	if s.Ref == "" && len(s.AllOf) == 1 {
		s = s.AllOf[0]
	}
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		if s, of = d.Components.Schemas[name], short(name); s == nil {
			return
		}
	}
	var inner []any
	for _, v := range values {
		switch v := v.(type) {
		case []any:
			inner = append(inner, v...)
		case map[string]any:
			inner = append(inner, slices.Collect(maps.Values(v))...)
		}
	}
	var rest part
	switch {
	case s.Items != nil && len(inner) > 0:
		d.walk(s.Items, inner, of)
	case s.Properties == nil && len(inner) > 0 && json.Unmarshal(s.AdditionalProperties, &rest) == nil:
		d.walk(&rest, inner, of)
	}
	for name, property := range s.Properties {
		var have []any
		for _, v := range values {
			in, _ := v.(map[string]any)
			if value, ok := in[name]; ok {
				have = append(have, value)
			}
		}
		field := of + "." + name
		d.has[field] = d.has[field] || len(have) > 0
		if len(have) > 0 {
			d.walk(property, have, field)
		}
	}
}
