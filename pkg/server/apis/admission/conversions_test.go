package admission_test

import (
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	upstream "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"

	"github.com/regent-project/regent/pkg/server/apis/admission"
)

type warnings []string

func (w *warnings) AddWarning(_, text string) { *w = append(*w, text) }

func TestAConversionWebhookThatIsNeverCalledIsToldBeforehand(t *testing.T) {
	by := func(of *apiextensionsv1.WebhookClientConfig) *apiextensionsv1.CustomResourceDefinition {
		d := &apiextensionsv1.CustomResourceDefinition{}
		d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
		if of != nil {
			d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{ClientConfig: of}}
		}
		return d
	}
	at := func(url string) *apiextensionsv1.CustomResourceDefinition {
		return by(&apiextensionsv1.WebhookClientConfig{URL: &url})
	}
	service := by(&apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Name: "x"}})
	for name, tc := range map[string]struct {
		none     bool
		old, new *apiextensionsv1.CustomResourceDefinition
		want     string
		warned   bool
	}{
		"no webhook":                {new: by(nil)},
		"allowed":                   {new: at("https://good/x")},
		"elsewhere":                 {new: at("https://bad:443/x"), want: "no webhooks at that address"},
		"a change that leads there": {old: at("https://good/x"), new: at("https://bad/x"), want: "no webhooks at that address"},
		"another change":            {old: at("https://bad/x"), new: at("https://bad/x")},
		"none is called":            {none: true, new: at("https://good/x"), want: "calls no conversion webhooks"},
		"none is called before":     {none: true, old: at("https://good/x"), new: at("https://good/x")},
		"no webhook where none is":  {none: true, new: by(nil)},
		"by service":                {new: service, warned: true},
		"by service as before":      {old: service, new: service},
	} {
		t.Run(name, func(t *testing.T) {
			plugin := &admission.Conversions{None: tc.none, AllowsHost: func(host string) bool { return host == "good" }}
			var old runtime.Object
			op := upstream.Create
			if tc.old != nil {
				old, op = tc.old, upstream.Update
			}
			var heard warnings
			err := plugin.Validate(warning.WithWarningRecorder(t.Context(), &heard), upstream.NewAttributesRecord(
				tc.new, old, apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), "", "x",
				apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"), "", op, nil, false, nil,
			), nil)
			if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
			if got := slices.ContainsFunc(heard, func(w string) bool { return strings.Contains(w, "no services") }); got != tc.warned {
				t.Errorf("warnings: %q", heard)
			}
		})
	}
}
