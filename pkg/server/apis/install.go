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

// Storage has the objects of all resources that the shard stores. Close it, also if an API server serves it: what that
// has destroyed when it ended is not destroyed again.
type Storage struct {
	// groups has the handlers of requests, by API group.
	groups map[string]*group
	reader *Reader
	// shards is filled in by Install.
	shards resource.Shards
}

// Open opens the storage that getter provides. custom has the objects that definitions define; nil: there are none.
func Open(getter generic.RESTOptionsGetter, custom CustomObjects) (*Storage, error) {
	s := &Storage{groups: map[string]*group{}, reader: &Reader{custom: custom, stored: map[schema.GroupVersionResource]stored{}}}
	for _, d := range described() {
		if err := s.add(d, getter); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

func (s *Storage) add(d resource.Described, getter generic.RESTOptionsGetter) error {
	versions, err := d.Serve(Scheme, getter, &s.shards)
	if err != nil {
		return err
	}
	jsonOnly := d.Encoding(Codecs).MediaType == runtime.ContentTypeJSON
	for gv, storage := range versions {
		add(s.groups, gv, storage, jsonOnly)
	}
	return s.reader.add(d, versions[d.Resource().GVR.GroupVersion()][d.Resource().GVR.Resource])
}

// Reader returns what reads this storage.
func (s *Storage) Reader() *Reader { return s.reader }

// Close closes the storage. No request may be under way.
func (s *Storage) Close() {
	for _, g := range s.groups {
		for _, storages := range g.versions {
			for _, storage := range storages {
				storage.Destroy()
			}
		}
	}
}

// Install makes the server serve all resources, once. Tables tell of shards. What is virtual must be of the kinds in
// Types.
func (s *Storage) Install(server *genericapiserver.GenericAPIServer, shards resource.Shards, virtual ...resource.Virtual) error {
	s.shards = shards
	for _, v := range virtual {
		add(s.groups, v.GroupVersion, map[string]rest.Storage{v.Name: v.Storage}, false)
	}
	for _, name := range slices.Sorted(maps.Keys(s.groups)) {
		if err := s.groups[name].install(server, name); err != nil {
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
