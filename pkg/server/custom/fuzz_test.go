package custom

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	upstream "k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/server/webhooks"
)

// one is storage that holds the same bytes under each key.
type one struct {
	upstream.Interface
	raw []byte
}

func (one) Versioner() upstream.Versioner { return upstream.APIObjectVersioner{} }

func (s one) Get(_ context.Context, _ string, _ upstream.GetOptions, into runtime.Object) error {
	return into.(*object).parse(s.raw)
}

// Whatever a definition says that the API accepts, and whatever is stored of it: it is served and described, and
// nothing panics.
func FuzzWhatADefinitionSays(f *testing.F) {
	for _, properties := range []string{
		"", `, "size": {"type": "integer", "default": 3, "maximum": 10}`, `, "any": {"x-kubernetes-preserve-unknown-fields": true}`,
		`, "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}}`,
		`, "port": {"x-kubernetes-int-or-string": true}, "deep": {"type": "object", "additionalProperties": {"type": "object", "nullable": true}}`,
		`, "rule": {"type": "string", "maxLength": 5, "x-kubernetes-validations": [{"rule": "self.startsWith('a')"}]}`,
	} {
		seed, err := json.Marshal(widgets(properties))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed, []byte(widget("x", `{"color":"red","size":"no","list":[{"name":"a"},{}],"port":8,"deep":{"a":null}}`)))
	}
	cfg := HandlerConfig{Admission: Terminating{}, Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer(), MaxRequestBytes: 1 << 20}
	f.Fuzz(func(t *testing.T, said, stored []byte) {
		d := &apiextensionsv1.CustomResourceDefinition{}
		if json.Unmarshal(said, d) != nil {
			return
		}
		if faultsOf(t.Context(), d) != nil {
			return
		}
		content, err := (&Contents{}).Of(&d.Spec, &d.Status.AcceptedNames)
		if err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		of := &Definition{Content: content}
		_ = groupsOf([]*Definition{of})
		handler, err := (&handlers{base: one{raw: stored}, cfg: cfg, converters: newConverters(webhooks.Networks{})}).build(content)
		if err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		for _, s := range of.served() {
			if _, err := schemasOf([]*Definition{of}, s.gv); err != nil {
				t.Logf("no schemas: %v", err)
			}
			path := "/clusters/aa/apis/" + s.gv.String() + "/"
			if s.Namespaced {
				path += "namespaces/default/"
			}
			inCluster(handler).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path+s.Name+"/x", nil))
		}
	})
}

// faultsOf gives a definition its defaults, has its names accepted, and returns what the API would say against it.
func faultsOf(ctx context.Context, d *apiextensionsv1.CustomResourceDefinition) (fault error) {
	defer func() {
		if value := recover(); value != nil { // the API refuses it, too
			fault = fmt.Errorf("upstream's rules panic: %v", value)
		}
	}()
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(d)
	d.Status.AcceptedNames = d.Spec.Names
	d.Status.StoredVersions = []string{"v1"}
	in := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(d.DeepCopy(), in, nil); err != nil {
		return err
	}
	return validation.ValidateCustomResourceDefinition(ctx, in).ToAggregate()
}
