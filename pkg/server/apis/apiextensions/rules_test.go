package apiextensions

import (
	"encoding/json"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Upstream's rules panic for this schema, which any tenant can write: it is refused like others that are wrong, in a
// new definition and in a change of one.
func TestASchemaThatCannotBeValidatedIsRefused(t *testing.T) {
	good, bad := widgetsWith(t, `{"type":"object"}`), widgetsWith(t, `{
		"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-validations": [{"rule": "true"}],
		"properties": {"metadata": {"type": "object", "additionalProperties": {
			"type": "object", "x-kubernetes-validations": [{"rule": "true"}],
			"properties": {"a": {"type": "boolean", "x-kubernetes-validations": [{"rule": "true"}]}}
		}}}
	}`)
	if errs := validateCreate(good); len(errs) > 0 {
		t.Fatal(errs)
	}
	bad.ResourceVersion, good.ResourceVersion = "1", "1"
	for how, errs := range map[string]error{"create": validateCreate(bad).ToAggregate(), "update": validateUpdate(bad, good).ToAggregate()} {
		if errs == nil || !strings.Contains(errs.Error(), "cannot be validated") {
			t.Errorf("%s: %v", how, errs)
		}
	}
}

func widgetsWith(t *testing.T, spec string) definition {
	t.Helper()
	d := &apiextensionsv1.CustomResourceDefinition{}
	text := `{"metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":` + spec + `}}}}]}}`
	if err := json.Unmarshal([]byte(text), d); err != nil {
		t.Fatal(err)
	}
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(d)
	prepareCreate(d)
	d.Status.StoredVersions = []string{"v1"}
	return d
}
