package openapi

import (
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// What upstream has renamed or removed would be described in vain, and what upstream says itself needs no words here.
func TestEachDescriptionIsOfAFieldThatUpstreamHas(t *testing.T) {
	ref := func(name string) spec.Ref { return spec.MustCreateRef(name) }
	upstream, own := GetOpenAPIDefinitions(ref), Definitions(ref)
	for at, want := range descriptions {
		name, field, ofField := strings.Cut(at, "/")
		theirs, ok := upstream[ofKCP+name]
		if !ok {
			t.Errorf("%s: upstream has no such type", at)
			continue
		}
		before, after := theirs.Schema.Description, own[ofKCP+name].Schema.Description
		if ofField {
			property, ok := theirs.Schema.Properties[field]
			if !ok {
				t.Errorf("%s: upstream's type has no such field", at)
				continue
			}
			before, after = property.Description, own[ofKCP+name].Schema.Properties[field].Description
		}
		if before == want {
			t.Errorf("%s: upstream says so itself", at)
		}
		if after != want {
			t.Errorf("%s is described as %q, want %q", at, after, want)
		}
	}
	if len(own) < len(upstream) {
		t.Errorf("%d definitions of %d", len(own), len(upstream))
	}
}
