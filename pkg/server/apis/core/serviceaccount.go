package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/apis/resource"
)

// serviceAccounts have nothing to validate but their metadata, as upstream.
var serviceAccounts = resource.Definition[*corev1.ServiceAccount]{
	GVR:           corev1.SchemeGroupVersion.WithResource("serviceaccounts"),
	Namespaced:    true,
	ShortNames:    []string{"sa"},
	List:          &corev1.ServiceAccountList{},
	Name:          validation.ValidateServiceAccountName,
	Unconditional: true,
	BuiltIn:       clusters.BuiltIn.ServiceAccounts,
	PrepareCreate: keepSecretNames,
	PrepareUpdate: func(a, _ *corev1.ServiceAccount) { keepSecretNames(a) },
	Columns: []resource.Column[*corev1.ServiceAccount]{
		resource.Name[*corev1.ServiceAccount](),
		{Name: "Secrets", Type: "integer", Description: corev1.ServiceAccount{}.SwaggerDoc()["secrets"], Cell: func(a *corev1.ServiceAccount) any {
			return int64(len(a.Secrets))
		}},
		resource.Age[*corev1.ServiceAccount](),
	},
}

// keepSecretNames drops what references to Secrets say beside the name. They are in the account's own namespace, and of
// no other kind.
func keepSecretNames(a *corev1.ServiceAccount) {
	for n := range a.Secrets {
		a.Secrets[n] = corev1.ObjectReference{Name: a.Secrets[n].Name}
	}
}
