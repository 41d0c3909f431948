package apis

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/regent-project/regent/pkg/server/apis/openapi"
	"github.com/regent-project/regent/pkg/server/apis/resource"
)

// What generated clients ask for is what must be served: by a wrong plural or scope a namespace would not be emptied.
func TestResourcesAreCalledAsTheirPublishersCallThem(t *testing.T) {
	published := publishedByKubernetes()
	// Other generated clients need modules that nothing else here does.
	for kind, gvr := range map[string]schema.GroupVersionResource{
		"Workspace":      tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces"),
		"LogicalCluster": corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"),
		"Shard":          corev1alpha1.SchemeGroupVersion.WithResource("shards"),

		"APIResourceSchema": apisv1alpha1.SchemeGroupVersion.WithResource("apiresourceschemas"),
		"APIExport":         apisv1alpha2.SchemeGroupVersion.WithResource("apiexports"),
		"APIBinding":        apisv1alpha2.SchemeGroupVersion.WithResource("apibindings"),

		"CustomResourceDefinition": apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"),
	} {
		published[gvr.GroupVersion().WithKind(kind)] = resource.Resource{GVR: gvr, Kind: kind}
	}
	for _, r := range Resources() {
		want, ok := published[r.GVR.GroupVersion().WithKind(r.Kind)]
		if !ok {
			t.Errorf("%+v: nobody publishes the kind in this version", r)
		} else if r != want {
			t.Errorf("described as %+v, published as %+v", r, want)
		}
	}
}

// publishedByKubernetes returns what its generated clients offer. A client set has a method for each group and version,
// which returns a client with a method for each resource, which takes a namespace or nothing.
func publishedByKubernetes() map[schema.GroupVersionKind]resource.Resource {
	out := map[schema.GroupVersionKind]resource.Resource{}
	for group := range reflect.TypeFor[kubernetes.Interface]().Methods() {
		for client := range group.Type.Out(0).Methods() {
			gvk, ok := gottenBy(client.Type.Out(0))
			if ok {
				plural := gvk.GroupVersion().WithResource(strings.ToLower(client.Name))
				out[gvk] = resource.Resource{GVR: plural, Kind: gvk.Kind, Namespaced: client.Type.NumIn() == 1}
			}
		}
	}
	return out
}

// gottenBy returns the kind that a client of one resource gets.
func gottenBy(client reflect.Type) (schema.GroupVersionKind, bool) {
	if client.Kind() != reflect.Interface {
		return schema.GroupVersionKind{}, false
	}
	get, ok := client.MethodByName("Get")
	if !ok {
		return schema.GroupVersionKind{}, false
	}
	object, ok := reflect.New(get.Type.Out(0).Elem()).Interface().(runtime.Object)
	if !ok {
		return schema.GroupVersionKind{}, false
	}
	kinds, _, err := kubescheme.Scheme.ObjectKinds(object)
	return append(kinds, schema.GroupVersionKind{})[0], err == nil
}

func TestNothingIsDescribedTwice(t *testing.T) {
	seen := map[schema.GroupResource]bool{}
	for _, r := range Resources() {
		if seen[r.GVR.GroupResource()] {
			t.Errorf("%s is described twice: they would share a place in etcd", r.GVR.GroupResource())
		}
		seen[r.GVR.GroupResource()] = true
	}
}

func TestProtobufIsSpokenByTheTypesThatHaveIt(t *testing.T) {
	for _, d := range described() {
		jsonOnly := d.Encoding(Codecs).MediaType == runtime.ContentTypeJSON
		for _, object := range d.Types() {
			if _, ok := object.(interface{ Marshal() ([]byte, error) }); ok == jsonOnly {
				t.Errorf("%T encodes itself in protobuf: %t, it is described as JSON only: %t", object, ok, jsonOnly)
			}
		}
	}
}

func TestAllThatIsServedHasAnOpenAPIDefinition(t *testing.T) {
	if missing := undefined(); len(missing) > 0 {
		t.Errorf("run `make generate`: there are no OpenAPI definitions of %q", missing)
	}
}

// undefined returns the served types, and the types of their fields, that have no OpenAPI definition. A server does not
// start without them.
func undefined() (missing []string) {
	definitions := openapi.Definitions(func(name string) spec.Ref { return spec.MustCreateRef(name) })
	need := func(name string) common.OpenAPIDefinition {
		definition, ok := definitions[name]
		if !ok && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
		return definition
	}
	for _, object := range Types() {
		need(util.GetCanonicalTypeName(object))
	}
	for _, name := range slices.Sorted(maps.Keys(definitions)) {
		for _, dependency := range definitions[name].Dependencies {
			need(dependency)
		}
	}
	return missing
}
