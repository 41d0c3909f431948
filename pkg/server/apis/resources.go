package apis

import (
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/storage"
)

// Resource is one stored resource.
type Resource struct {
	GVR        schema.GroupVersionResource
	Kind       string
	Namespaced bool
}

// entry adds to a resource how it is stored.
type entry struct {
	Resource
	mediaType string
	uncached  bool
	term      func(runtime.Object) fence.Token
}

// table holds all that is stored, in the version it is stored in. (The events of events.k8s.io are those of core.)
var table = []entry{
	{Resource: Resource{gvr("", "v1", "namespaces"), "Namespace", false}, mediaType: runtime.ContentTypeProtobuf},
	{Resource: Resource{gvr("", "v1", "configmaps"), "ConfigMap", true}, mediaType: runtime.ContentTypeProtobuf},
	{Resource: Resource{gvr("", "v1", "secrets"), "Secret", true}, mediaType: runtime.ContentTypeProtobuf},
	// Events are written often, expire by themselves, and few read them.
	{Resource: Resource{gvr("", "v1", "events"), "Event", true}, mediaType: runtime.ContentTypeProtobuf, uncached: true},
	{Resource: Resource{gvr("coordination.k8s.io", "v1", "leases"), "Lease", true}, mediaType: runtime.ContentTypeProtobuf, term: termOf},
	{Resource: Resource{gvr("coordination.k8s.io", "v1beta1", "leasecandidates"), "LeaseCandidate", true}, mediaType: runtime.ContentTypeProtobuf},
	// kcp's types have no protobuf encoding.
	{Resource: Resource{gvr("tenancy.kcp.io", "v1alpha1", "workspaces"), "Workspace", false}, mediaType: runtime.ContentTypeJSON},
	{Resource: Resource{gvr("core.kcp.io", "v1alpha1", "logicalclusters"), "LogicalCluster", false}, mediaType: runtime.ContentTypeJSON},
}

// termOf is what a stored Lease shows.
func termOf(lease runtime.Object) fence.Token {
	if l, ok := lease.(*coordinationv1.Lease); ok {
		return fence.OfLease(l)
	}
	return fence.Token{}
}

func gvr(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

// Resources returns all resources the shard stores, each once.
func Resources() []Resource {
	var out []Resource
	for _, e := range table {
		out = append(out, e.Resource)
	}
	return out
}

// NewGetter returns the storage of what is in the table.
func NewGetter(client *storage.Client) *storage.Getter {
	return storage.NewGetter(client, func(resource schema.GroupResource) (storage.Encoding, error) {
		for _, e := range table {
			if e.GVR.GroupResource() == resource {
				return storage.Encoding{Serializer: Codecs, Version: e.GVR.GroupVersion(), MediaType: e.mediaType, Uncached: e.uncached, Term: e.term}, nil
			}
		}
		return storage.Encoding{}, fmt.Errorf("%s is not in the table of package apis", resource)
	})
}
