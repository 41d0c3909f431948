package kcpapis

import (
	"fmt"

	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/server/apis/apiextensions"
)

// Definition returns the CustomResourceDefinition that says the same as a schema, complete and without a status.
func Definition(s *apisv1alpha1.APIResourceSchema) (*apiextensionsv1.CustomResourceDefinition, error) {
	out := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: s.Spec.Names.Plural + "." + s.Spec.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: s.Spec.Group, Names: *s.Spec.Names.DeepCopy(), Scope: s.Spec.Scope, Conversion: Conversion(s.Spec.Conversion),
		},
	}
	if approval, ok := s.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation]; ok {
		out.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: approval}
	}
	for n := range s.Spec.Versions {
		v, err := version(s.Spec.Versions[n].DeepCopy())
		if err != nil {
			return nil, fmt.Errorf("version %q: %w", s.Spec.Versions[n].Name, err)
		}
		out.Spec.Versions = append(out.Spec.Versions, v)
	}
	apiextensions.Complete(out)
	return out, nil
}

func version(v *apisv1alpha1.APIResourceVersion) (out apiextensionsv1.CustomResourceDefinitionVersion, err error) {
	out = apiextensionsv1.CustomResourceDefinitionVersion{
		Name: v.Name, Served: v.Served, Storage: v.Storage, Deprecated: v.Deprecated, DeprecationWarning: v.DeprecationWarning,
		AdditionalPrinterColumns: v.AdditionalPrinterColumns,
	}
	if v.Subresources.Status != nil || v.Subresources.Scale != nil {
		out.Subresources = &v.Subresources
	}
	props, err := v.GetSchema()
	if err != nil {
		return out, fmt.Errorf("its schema: %w", err)
	}
	if props != nil {
		out.Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: props}
	}
	return out, nil
}

// Conversion returns how a definition would say what a schema says about conversion.
func Conversion(c *apisv1alpha1.CustomResourceConversion) *apiextensionsv1.CustomResourceConversion {
	if c == nil {
		return nil
	}
	out := &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.ConversionStrategyType(c.Strategy)}
	if c.Webhook == nil {
		return out
	}
	out.Webhook = &apiextensionsv1.WebhookConversion{ConversionReviewVersions: c.Webhook.ConversionReviewVersions}
	if client := c.Webhook.ClientConfig; client != nil {
		out.Webhook.ClientConfig = &apiextensionsv1.WebhookClientConfig{URL: &client.URL, CABundle: client.CABundle}
	}
	return out
}
