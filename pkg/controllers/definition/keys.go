package definition

import (
	"hash/fnv"
	"slices"
	"sync"

	"github.com/kcp-dev/logicalcluster/v3"
	apisv1alpha1 "github.com/kcp-dev/sdk/apis/apis/v1alpha1"
	apisv1alpha2 "github.com/kcp-dev/sdk/apis/apis/v1alpha2"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/loop"
)

// what a key is of.
type what string

const (
	aGroup   what = "group"   // of definitions: the key has its name
	aBinding what = "binding" // an APIBinding
	aCopy    what = "copy"    // the copy of a schema, in clusters.BoundSchemas
	anOffer  what = "offer"   // an APIExport of another shard
	aShard   what = "shard"   // the changes of exports of another shard
	aHome    what = "home"    // the shard of an APIExport that its bindings name, and that does not have it
)

type key struct {
	what  what
	of    clusters.Key
	shard string // another one, or for aHome also this one
}

// chargedTo returns whom the work for a key is charged to. What another shard is asked for may hang for all of its
// clusters.
func (k key) chargedTo() string {
	if k.shard != "" {
		return "shard " + k.shard
	}
	return k.of.Cluster.String()
}

// LogicalCluster implements loop.Clustered. What another shard is asked for, each range asks for itself: its bindings
// are decided by it.
func (k key) LogicalCluster() logicalcluster.Name {
	if k.shard != "" {
		return ""
	}
	return k.of.Cluster
}

// String is for logs.
func (k key) String() string {
	switch k.what {
	case aShard:
		return "exports of shard " + k.shard
	case anOffer, aHome:
		return string(k.what) + " " + k.of.String() + " of shard " + k.shard
	default:
		return string(k.what) + " " + k.of.String()
	}
}

type (
	binding        = *apisv1alpha2.APIBinding
	resourceSchema = *apisv1alpha1.APIResourceSchema

	apiVersion = apisv1alpha1.APIResourceVersion
)

// watch says which changes concern whom. A name that gets free may be wanted by definitions of its group, and by any
// binding of the cluster that lacks a name.
func (c *controller) watch() {
	loop.Watch(c.Loop, c.definitions, c.changed)
	loop.Watch(c.Loop, c.informers.APIBindings, c.concerned)
	loop.Watch(c.Loop, c.informers.APIResourceSchemas, copyKeys)
	loop.FollowAll(c.Loop, c.informers.APIResourceSchemas, c.concernedBySchema)
	if copies := (key{what: aCopy, of: clusters.Key{Cluster: clusters.BoundSchemas}}); c.Has(copies) {
		loop.FollowAll(c.Loop, c.informers.APIBindings, usedCopies)
	}
	loop.FollowAll(c.Loop, c.informers.APIExports, func(e *apisv1alpha2.APIExport) []key { return c.bindingsOf(clusters.KeyOf(e)) })
	loop.Follow(c.Loop, c.informers.CustomObjects, c.waiting)
	c.followShards()
}

// concerned returns whom a binding concerns in its own cluster: itself, the definitions and the bindings that may want
// its names; and its export if another shard has that.
func (c *controller) concerned(b binding) []key {
	of := clusters.KeyOf(b)
	keys := append(c.lacking(of.Cluster), key{what: aBinding, of: of})
	if offer, foreign := offerOf(b); foreign {
		keys = append(keys, offer)
	}
	for n := range b.Status.BoundResources {
		r := &b.Status.BoundResources[n]
		keys = append(keys, key{what: aGroup, of: clusters.Key{Cluster: of.Cluster, Name: r.Group}})
	}
	return keys
}

// usedCopies returns the copies that a binding uses.
func usedCopies(b binding) (keys []key) {
	for n := range b.Status.BoundResources {
		keys = append(keys, key{what: aCopy, of: clusters.BoundSchemaKey(&b.Status.BoundResources[n])})
	}
	return keys
}

// copyKeys returns the key of a schema that is a copy.
func copyKeys(s resourceSchema) []key {
	if of := clusters.KeyOf(s); of.Cluster == clusters.BoundSchemas {
		return []key{{what: aCopy, of: of}}
	}
	return nil
}

// lacking returns the bindings of a cluster that could not bind everything.
func (c *controller) lacking(cluster logicalcluster.Name) (keys []key) {
	for _, b := range c.informers.APIBindings.List(cluster) {
		if conditions.IsFalse(b, apisv1alpha2.BindingUpToDate) {
			keys = append(keys, key{what: aBinding, of: clusters.KeyOf(b)})
		}
	}
	return keys
}

// bindingsOf returns the bindings of an export.
func (c *controller) bindingsOf(export clusters.Key) (keys []key) {
	for _, b := range c.informers.APIBindings.ByIndex(controllers.ByExport, export.String()) {
		if controllers.ExportShardOf(b) != "" {
			continue // it has an export of that name, in a cluster of that name, of another shard
		}
		keys = append(keys, key{what: aBinding, of: clusters.KeyOf(b)})
	}
	return keys
}

// concernedBySchema returns whom a schema concerns: the bindings of exports that name it, and of a copy who may have
// waited for it to come into the cache.
func (c *controller) concernedBySchema(s resourceSchema) (keys []key) {
	of := clusters.KeyOf(s)
	if of.Cluster != clusters.BoundSchemas {
		for _, e := range c.informers.APIExports.List(of.Cluster) {
			if slices.ContainsFunc(e.Spec.Resources, func(r apisv1alpha2.ResourceSchema) bool { return r.Schema == s.Name }) {
				keys = append(keys, c.bindingsOf(clusters.KeyOf(e))...)
			}
		}
		return keys
	}
	for _, b := range c.informers.APIBindings.ByIndex(controllers.ByBoundSchema, of.Name) {
		at := clusters.KeyOf(b)
		keys = append(keys, key{what: aBinding, of: at}, key{what: aGroup, of: clusters.Key{Cluster: at.Cluster, Name: s.Spec.Group}})
	}
	return keys
}

// waiting returns who may wait for a custom object to go.
func (c *controller) waiting(obj *clusters.CustomObject) (keys []key) {
	of := clusters.Key{Cluster: clusters.KeyOf(obj).Cluster, Name: obj.GroupKind().Group}
	if len(c.definitions.ByIndex(controllers.ByGroupLeaving, controllers.GroupValue(of.Cluster, of.Name))) > 0 {
		keys = append(keys, key{what: aGroup, of: of})
	}
	for _, b := range c.informers.APIBindings.List(of.Cluster) {
		if b.DeletionTimestamp != nil && slices.ContainsFunc(b.Status.BoundResources, func(r apisv1alpha2.BoundAPIResource) bool { return r.Group == of.Name }) {
			keys = append(keys, key{what: aBinding, of: clusters.KeyOf(b)})
		}
	}
	return keys
}

// stripes are locks by logical cluster. Some clusters share one.
type stripes [64]sync.Mutex

func (s *stripes) lock(cluster logicalcluster.Name) (unlock func()) {
	h := fnv.New32a()
	_, _ = h.Write([]byte(cluster))
	m := &s[h.Sum32()%uint32(len(s))]
	m.Lock()
	return m.Unlock
}
