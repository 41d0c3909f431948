package admission

import (
	"context"
	"net/url"

	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"

	"github.com/regent-project/regent/pkg/server/apis/kcpapis"
)

// Conversions refuses CustomResourceDefinitions and APIResourceSchemas with a conversion webhook that the server would
// not call, where that can be told beforehand. What the name of a host stands for is judged at each call.
type Conversions struct {
	// None says that no conversion webhook is called.
	None bool
	// AllowsHost reports whether a webhook may be at a host.
	AllowsHost func(host string) bool
}

// Handles implements admission.Interface.
func (c *Conversions) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}

// Validate implements admission.ValidationInterface. A definition that has its webhook already is let pass: the
// operator may have become stricter, and it must be possible to change other things.
func (c *Conversions) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	by, ok := conversionOf(a.GetObject())
	if !ok || a.GetSubresource() != "" {
		return nil
	}
	if old, ok := conversionOf(a.GetOldObject()); ok && equality.Semantic.DeepEqual(old, by) {
		return nil
	}
	if by == nil || by.Strategy != apiextensionsv1.WebhookConverter || by.Webhook == nil || by.Webhook.ClientConfig == nil {
		return nil
	}
	at := field.NewPath("spec", "conversion", "webhook", "clientConfig")
	of := by.Webhook.ClientConfig
	switch {
	case of.URL == nil:
		warning.AddWarning(ctx, "", at.Child("service").String()+": there are no services here, so objects are not converted between versions: give the webhook by url")
	case c.None:
		return refuse(a, field.Forbidden(at, "this server calls no conversion webhooks: use strategy None, or ask its operator for --conversion-webhook-networks"))
	default:
		if u, err := url.Parse(*of.URL); err == nil && !c.AllowsHost(u.Hostname()) {
			return refuse(a, field.Forbidden(at.Child("url"), "this server calls no webhooks at that address: its operator says with --conversion-webhook-networks which ones it calls"))
		}
	}
	return nil
}

// conversionOf returns how a definition or a schema says that objects are converted. It is not ok for other objects.
func conversionOf(obj runtime.Object) (*apiextensionsv1.CustomResourceConversion, bool) {
	switch d := obj.(type) {
	case *apiextensionsv1.CustomResourceDefinition:
		return d.Spec.Conversion, true
	case *apisv1alpha1.APIResourceSchema:
		return kcpapis.Conversion(d.Spec.Conversion), true
	}
	return nil, false
}

func refuse(a admission.Attributes, why *field.Error) error {
	return apierrors.NewInvalid(a.GetKind().GroupKind(), a.GetName(), field.ErrorList{why})
}

var _ admission.ValidationInterface = (*Conversions)(nil)
