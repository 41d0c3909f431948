package apis

import (
	"fmt"
	"slices"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/regent-project/regent/pkg/server/apis/coordination"
	"github.com/regent-project/regent/pkg/server/apis/core"
	"github.com/regent-project/regent/pkg/server/apis/kcpcore"
	"github.com/regent-project/regent/pkg/server/apis/openapi"
	"github.com/regent-project/regent/pkg/server/apis/tenancy"
)

// Configure sets what the server needs to know of the APIs before it is completed. Serializers come from Codecs:
// genericapiserver.NewConfig(apis.Codecs).
func Configure(config *genericapiserver.Config) {
	namer := openapinamer.NewDefinitionNamer(Scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, namer)
	config.OpenAPIConfig.Info.Title = "Regent"
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer)
	config.OpenAPIV3Config.Info.Title = "Regent"
}

// Install makes the server serve everything, from storage that getter provides, and returns a reader of that storage.
// The server destroys the storage when it ends.
func Install(server *genericapiserver.GenericAPIServer, getter generic.RESTOptionsGetter) (*Reader, error) {
	coreV1, eventsV1, err := core.Storage(Scheme, getter)
	if err != nil {
		return nil, err
	}
	coordinationStorage, err := coordination.Storage(Scheme, getter)
	if err != nil {
		return nil, err
	}
	workspaces, err := tenancy.Storage(Scheme, getter)
	if err != nil {
		return nil, err
	}
	logicalClusters, err := kcpcore.Storage(Scheme, getter)
	if err != nil {
		return nil, err
	}
	reader, err := newReader(coreV1, workspaces, logicalClusters)
	if err != nil {
		return nil, err
	}
	legacy := newGroup(corev1.GroupName, map[string]map[string]rest.Storage{"v1": coreV1})
	if err := server.InstallLegacyAPIGroup(genericapiserver.DefaultLegacyAPIPrefix, &legacy); err != nil {
		return nil, fmt.Errorf("cannot serve core/v1: %w", err)
	}
	for name, storage := range map[string]map[string]map[string]rest.Storage{
		eventsv1.GroupName:                       {"v1": {"events": eventsV1}},
		coordinationv1.GroupName:                 coordinationStorage,
		tenancyv1alpha1.SchemeGroupVersion.Group: {"v1alpha1": workspaces},
		corev1alpha1.SchemeGroupVersion.Group:    {"v1alpha1": logicalClusters},
	} {
		group := newGroup(name, storage)
		if ofKcp(name) {
			group.NegotiatedSerializer = withoutProtobuf{group.NegotiatedSerializer}
		}
		if err := server.InstallAPIGroup(&group); err != nil {
			return nil, fmt.Errorf("cannot serve %s: %w", name, err)
		}
	}
	return reader, nil
}

func newGroup(name string, storage map[string]map[string]rest.Storage) genericapiserver.APIGroupInfo {
	group := genericapiserver.NewDefaultAPIGroupInfo(name, Scheme, ParameterCodec, Codecs)
	group.VersionedResourcesStorageMap = storage
	return group
}

func ofKcp(group string) bool {
	return group == tenancyv1alpha1.SchemeGroupVersion.Group || group == corev1alpha1.SchemeGroupVersion.Group
}

// withoutProtobuf offers everything but protobuf, which kcp's types do not speak. Clients that prefer it get JSON, as
// they do of custom resources.
type withoutProtobuf struct{ runtime.NegotiatedSerializer }

func (s withoutProtobuf) SupportedMediaTypes() []runtime.SerializerInfo {
	return slices.DeleteFunc(slices.Clone(s.NegotiatedSerializer.SupportedMediaTypes()), func(info runtime.SerializerInfo) bool {
		return info.MediaType == runtime.ContentTypeProtobuf
	})
}
