package apis

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/regent-project/regent/pkg/server/apis/resource"
)

// Install makes the server serve all resources, from storage that getter provides, and makes reader read that storage.
// The server destroys the storage when it ends. What is virtual must be of the kinds in Types.
func Install(server *genericapiserver.GenericAPIServer, getter generic.RESTOptionsGetter, reader *Reader, virtual ...resource.Virtual) error {
	groups := map[string]*group{}
	for _, d := range described() {
		versions, err := d.Serve(Scheme, getter)
		if err != nil {
			return err
		}
		jsonOnly := d.Encoding(Codecs).MediaType == runtime.ContentTypeJSON
		for gv, storage := range versions {
			add(groups, gv, storage, jsonOnly)
		}
		if err := reader.add(d, versions[d.Resource().GVR.GroupVersion()][d.Resource().GVR.Resource]); err != nil {
			return err
		}
	}
	for _, v := range virtual {
		add(groups, v.GroupVersion, map[string]rest.Storage{v.Name: v.Storage}, false)
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		if err := groups[name].install(server, name); err != nil {
			return fmt.Errorf("cannot serve the API group %q: %w", name, err)
		}
	}
	return nil
}

// group is an API group to be installed.
type group struct {
	// versions has the handlers of requests, by version and by the name in the URL.
	versions map[string]map[string]rest.Storage
	jsonOnly bool
}

func add(groups map[string]*group, gv schema.GroupVersion, storage map[string]rest.Storage, jsonOnly bool) {
	if groups[gv.Group] == nil {
		groups[gv.Group] = &group{versions: map[string]map[string]rest.Storage{}}
	}
	groups[gv.Group].add(gv.Version, storage, jsonOnly)
}

func (g *group) add(version string, storage map[string]rest.Storage, jsonOnly bool) {
	if g.versions[version] == nil {
		g.versions[version] = map[string]rest.Storage{}
	}
	maps.Copy(g.versions[version], storage)
	g.jsonOnly = g.jsonOnly || jsonOnly
}

func (g *group) install(server *genericapiserver.GenericAPIServer, name string) error {
	info := genericapiserver.NewDefaultAPIGroupInfo(name, Scheme, ParameterCodec, Codecs)
	info.VersionedResourcesStorageMap = g.versions
	if g.jsonOnly {
		info.NegotiatedSerializer = withoutProtobuf{info.NegotiatedSerializer}
	}
	if name == "" {
		return server.InstallLegacyAPIGroup(genericapiserver.DefaultLegacyAPIPrefix, &info)
	}
	return server.InstallAPIGroup(&info)
}

// withoutProtobuf offers no protobuf, for groups with types that have no such encoding. Clients that prefer protobuf
// get JSON, as they do for custom resources.
type withoutProtobuf struct{ runtime.NegotiatedSerializer }

func (s withoutProtobuf) SupportedMediaTypes() []runtime.SerializerInfo {
	return slices.DeleteFunc(slices.Clone(s.NegotiatedSerializer.SupportedMediaTypes()), func(info runtime.SerializerInfo) bool {
		return info.MediaType == runtime.ContentTypeProtobuf
	})
}
