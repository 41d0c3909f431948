package apis

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/version"
)

var (
	// Scheme knows the types that are served, and no others.
	Scheme = newScheme()
	// Codecs encode and decode for clients and for storage.
	Codecs = serializer.NewCodecFactory(Scheme)
	// ParameterCodec decodes the parameters of a URL.
	ParameterCodec = runtime.NewParameterCodec(Scheme)
)

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	versions := map[string][]schema.GroupVersion{}
	for _, d := range described() {
		utilruntime.Must(d.AddToScheme(scheme))
		gv := d.Resource().GVR.GroupVersion()
		versions[gv.Group] = append(versions[gv.Group], gv)
	}
	for _, k := range virtualKinds() {
		k.AddToScheme(scheme)
		metav1.AddToGroupVersion(scheme, k.GroupVersion)
		versions[k.GroupVersion.Group] = append(versions[k.GroupVersion.Group], k.GroupVersion)
	}
	for group, all := range versions {
		if err := scheme.SetVersionPriority(preferredFirst(all)...); err != nil {
			panic(fmt.Errorf("versions of %s: %w", group, err))
		}
	}
	v1 := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, v1)
	scheme.AddUnversionedTypes(v1, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	return scheme
}

// preferredFirst returns each version once, in the order in which clients should prefer them: v1 before v1beta1.
func preferredFirst(versions []schema.GroupVersion) []schema.GroupVersion {
	slices.SortFunc(versions, func(a, b schema.GroupVersion) int {
		return version.CompareKubeAwareVersionStrings(b.Version, a.Version)
	})
	return slices.Compact(versions)
}
