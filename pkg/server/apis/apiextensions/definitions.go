// Package apiextensions describes apiextensions.k8s.io/v1: CustomResourceDefinitions. Its rules are upstream's own.
// They are written for upstream's internal type, in which definitions are neither stored nor cached here: it takes half
// again as much memory.
package apiextensions

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/regent-project/regent/pkg/server/apis/resource"
)

// Resources are the resources of the group.
var Resources = []resource.Described{definitions}

type definition = *apiextensionsv1.CustomResourceDefinition

var definitions = resource.Definition[definition]{
	GVR:            apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"),
	ShortNames:     []string{"crd", "crds"},
	Categories:     []string{"api-extensions"},
	List:           &apiextensionsv1.CustomResourceDefinitionList{},
	Stored:         resource.Stored[definition]{Share: find},
	Name:           func(string, bool) []string { return nil }, // validateCreate looks at it
	Reset:          fieldpath.NewSet(fieldpath.MakePathOrDie("status")),
	Default:        func(d definition) { apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(d) },
	PrepareCreate:  prepareCreate,
	PrepareUpdate:  prepareUpdate,
	ValidateCreate: validateCreate,
	ValidateUpdate: validateUpdate,
	Warn:           warn,
	Columns: []resource.Column[definition]{
		resource.Name[definition](),
		{Name: "Created At", Type: "date", Description: "When the definition was made", Cell: func(d definition) any { return d.CreationTimestamp.UTC().Format("2006-01-02T15:04:05Z") }},
		{Name: "Group", Wide: true, Description: "The API group", Cell: func(d definition) any { return d.Spec.Group }},
		{Name: "Scope", Wide: true, Description: "Whether the objects are in namespaces", Cell: func(d definition) any { return string(d.Spec.Scope) }},
		{Name: "Stored", Wide: true, Description: "The API version in which objects are stored", Cell: func(d definition) any { return storageVersion(d) }},
	},
	Subresources: map[string]resource.Subresource[definition]{"status": {
		Keep:  func(d, old definition) { d.Spec = old.Spec },
		Reset: fieldpath.NewSet(fieldpath.MakePathOrDie("spec")),
	}},
	Wrap: newStore,
}

func storageVersion(d definition) string {
	for _, v := range d.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}
