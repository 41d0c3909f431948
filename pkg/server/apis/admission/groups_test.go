package admission_test

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	upstream "k8s.io/apiserver/pkg/admission"

	"github.com/regent-project/regent/pkg/server/apis"
	"github.com/regent-project/regent/pkg/server/apis/admission"
)

func TestNobodyDefinesWhatTheServerHas(t *testing.T) {
	plugin := &admission.Groups{BuiltIn: apis.BuiltIn}
	for group, refused := range map[string]bool{
		"example.com": false, "sub.core.kcp.io": false, "autoscaling.example.com": false,
		"rbac.authorization.k8s.io": true, "coordination.k8s.io": true, "apiextensions.k8s.io": true, "tenancy.kcp.io": true, "core.kcp.io": true,
		"authentication.k8s.io": true, "authorization.k8s.io": true, "events.k8s.io": true,
	} {
		d := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: group}}
		d.Name = "things." + group
		err := plugin.Validate(t.Context(), upstream.NewAttributesRecord(
			d, nil, apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), "", d.Name,
			apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"), "", upstream.Create, nil, false, nil,
		), nil)
		if refused != apierrors.IsInvalid(err) || refused && !strings.Contains(err.Error(), "choose another group") {
			t.Errorf("%s: %v", group, err)
		}
	}
}
