// Package apis is the table of what the shard serves. Each group has a package of its own, with its data, defaults,
// validation and tables.
//
// The published Go types are also what the server works with and stores: there are no internal types and no conversions
// but those of events.k8s.io.
package apis

import (
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/regent-project/regent/pkg/server/apis/coordination"
	"github.com/regent-project/regent/pkg/server/apis/core"
	"github.com/regent-project/regent/pkg/server/apis/events"
	"github.com/regent-project/regent/pkg/server/apis/kcpcore"
	"github.com/regent-project/regent/pkg/server/apis/tenancy"
)

var (
	// Scheme knows what is served and nothing else.
	Scheme = newScheme()
	// Codecs encode for clients and for storage.
	Codecs = serializer.NewCodecFactory(Scheme)
	// ParameterCodec reads the parameters of a URL.
	ParameterCodec = runtime.NewParameterCodec(Scheme)
)

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		core.AddToScheme, events.AddToScheme, coordination.AddToScheme, tenancy.AddToScheme, kcpcore.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	v1 := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, v1)
	scheme.AddUnversionedTypes(v1, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	if err := scheme.SetVersionPriority(coordinationv1.SchemeGroupVersion, coordinationv1beta1.SchemeGroupVersion); err != nil {
		panic(fmt.Errorf("versions of coordination.k8s.io: %w", err))
	}
	return scheme
}
