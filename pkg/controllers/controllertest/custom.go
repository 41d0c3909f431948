package controllertest

import (
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
)

// WithCustom returns informers with those of definitions and of custom objects, which run until the test ends. A nil
// source has nothing.
func WithCustom(
	t testing.TB, in controllers.Informers, definitions *Source[*apiextensionsv1.CustomResourceDefinition], objects *Source[*clusters.CustomObject],
) controllers.Informers {
	t.Helper()
	if definitions == nil {
		definitions = NewSource[*apiextensionsv1.CustomResourceDefinition]()
	}
	if objects == nil {
		objects = NewSource[*clusters.CustomObject]()
	}
	in.Definitions = Informer(t, definitions, controllers.DefinitionIndexers())
	in.APIResourceSchemas = Informer(t, NewSource[*apisv1alpha1.APIResourceSchema](), controllers.OwnerIndexers[*apisv1alpha1.APIResourceSchema]())
	in.APIExports = Informer(t, NewSource[*apisv1alpha2.APIExport](), controllers.OwnerIndexers[*apisv1alpha2.APIExport]())
	in.APIBindings = Informer(t, NewSource[*apisv1alpha2.APIBinding](), controllers.BindingIndexers())
	in.CustomObjects = Informer(t, objects, controllers.OwnerIndexers[*clusters.CustomObject]())
	return in
}

// Definition returns an established definition, with one version, v1. Its plural is the kind in lower case and an s.
func Definition(cluster, group, kind string, scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	plural := strings.ToLower(kind) + "s"
	names := apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: strings.ToLower(kind), Kind: kind, ListKind: kind + "List"}
	since := metav1.Unix(1000, 0)
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group, Annotations: map[string]string{logicalcluster.AnnotationKey: cluster}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Names: names, Scope: scope,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true}},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{
			AcceptedNames: names, StoredVersions: []string{"v1"},
			Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{
				{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: since, Reason: "NoConflicts", Message: "no conflicts found"},
				{
					Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: since,
					Reason: "InitialNamesAccepted", Message: "the initial names have been accepted",
				},
			},
		},
	}
}
