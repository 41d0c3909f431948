package garbagecollector

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/controllers/controllertest"
)

// store is a metadata client over the objects that feed the informers. It does what the collector counts on, and what
// client-go's fake does not: preconditions on uid and resourceVersion, propagation policies, finalizers, and a cluster
// in every call.
type store struct {
	mu      sync.Mutex
	sources map[schema.GroupVersionResource]*controllertest.Source[*metav1.PartialObjectMetadata]
	objects map[node]*metav1.PartialObjectMetadata // their uid is left out of the key
	gone    chan node                              // each object when it has gone
}

func newStore(resources ...controllers.Resource) *store {
	s := &store{
		sources: map[schema.GroupVersionResource]*controllertest.Source[*metav1.PartialObjectMetadata]{},
		objects: map[node]*metav1.PartialObjectMetadata{},
		gone:    make(chan node, 100),
	}
	for _, r := range resources {
		s.sources[r.GVR] = controllertest.NewSource[*metav1.PartialObjectMetadata]()
	}
	return s
}

func (s *store) informers(t *testing.T) map[schema.GroupVersionResource]cache {
	out := map[schema.GroupVersionResource]cache{}
	for gvr, source := range s.sources {
		out[gvr] = controllertest.Informer(t, source, controllers.OwnerIndexers[*metav1.PartialObjectMetadata]())
	}
	return out
}

// put stores the object and returns it as stored. The store is locked, or not yet shared.
func (s *store) put(gvr schema.GroupVersionResource, obj *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	stored := s.sources[gvr].Set(obj)
	s.objects[node{resource: gvr, key: clusters.KeyOf(stored)}] = stored
	return stored
}

func (s *store) create(gvr schema.GroupVersionResource, obj *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(gvr, obj)
}

// drop removes the object if nothing holds it. The store is locked.
func (s *store) drop(at node) {
	if obj := s.objects[at]; obj.DeletionTimestamp != nil && len(obj.Finalizers) == 0 {
		delete(s.objects, at)
		s.sources[at.resource].Delete(at.key)
		s.gone <- at
	}
}

func (s *store) get(at node) (*metav1.PartialObjectMetadata, error) {
	obj, ok := s.objects[at]
	if !ok {
		return nil, apierrors.NewNotFound(at.resource.GroupResource(), at.key.Name)
	}
	return obj.DeepCopy(), nil
}

func (s *store) Resource(gvr schema.GroupVersionResource) metadata.Getter {
	return &getter{store: s, gvr: gvr}
}

type getter struct {
	metadata.ResourceInterface // what the collector does not call
	store                      *store
	gvr                        schema.GroupVersionResource
	namespace                  string
}

func (g *getter) Namespace(namespace string) metadata.ResourceInterface {
	return &getter{store: g.store, gvr: g.gvr, namespace: namespace}
}

func (g *getter) at(ctx context.Context, name string) node {
	cluster, ok := clusters.From(ctx)
	if !ok {
		panic("a call without a cluster")
	}
	return node{resource: g.gvr, key: clusters.Key{Cluster: cluster, Namespace: g.namespace, Name: name}}
}

func (g *getter) Get(ctx context.Context, name string, _ metav1.GetOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	g.store.mu.Lock()
	defer g.store.mu.Unlock()
	return g.store.get(g.at(ctx, name))
}

func (g *getter) List(ctx context.Context, _ metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	g.store.mu.Lock()
	defer g.store.mu.Unlock()
	at := g.at(ctx, "")
	list := &metav1.PartialObjectMetadataList{}
	for n, obj := range g.store.objects {
		if n.resource == g.gvr && n.key.Cluster == at.key.Cluster && (g.namespace == "" || g.namespace == n.key.Namespace) {
			list.Items = append(list.Items, *obj.DeepCopy())
		}
	}
	return list, nil
}

func (g *getter) Delete(ctx context.Context, name string, options metav1.DeleteOptions, _ ...string) error {
	g.store.mu.Lock()
	defer g.store.mu.Unlock()
	at := g.at(ctx, name)
	obj, err := g.store.get(at)
	if err != nil {
		return err
	}
	p := options.Preconditions
	if p == nil || p.UID == nil || p.ResourceVersion == nil {
		panic("a deletion that does not say what it was decided on")
	}
	if *p.UID != obj.UID || *p.ResourceVersion != obj.ResourceVersion {
		return apierrors.NewConflict(g.gvr.GroupResource(), name, nil)
	}
	obj.Finalizers = without(without(obj.Finalizers, metav1.FinalizerOrphanDependents), metav1.FinalizerDeleteDependents)
	switch *options.PropagationPolicy {
	case metav1.DeletePropagationForeground:
		obj.Finalizers = append(obj.Finalizers, metav1.FinalizerDeleteDependents)
	case metav1.DeletePropagationOrphan:
		obj.Finalizers = append(obj.Finalizers, metav1.FinalizerOrphanDependents)
	}
	if obj.DeletionTimestamp == nil {
		obj.DeletionTimestamp = ptr.To(metav1.Unix(1000, 0))
	}
	g.store.put(g.gvr, obj)
	g.store.drop(at)
	return nil
}

func (g *getter) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	g.store.mu.Lock()
	defer g.store.mu.Unlock()
	at := g.at(ctx, name)
	obj, err := g.store.get(at)
	if err != nil {
		return nil, err
	}
	var fields struct{ Metadata map[string]json.RawMessage }
	var patch metav1.PartialObjectMetadata
	if err := errors.Join(json.Unmarshal(data, &fields), json.Unmarshal(data, &patch)); err != nil {
		return nil, err
	}
	if pt != types.MergePatchType || patch.UID != obj.UID || patch.ResourceVersion != obj.ResourceVersion {
		return nil, apierrors.NewConflict(g.gvr.GroupResource(), name, nil)
	}
	if _, ok := fields.Metadata["ownerReferences"]; ok {
		obj.OwnerReferences = patch.OwnerReferences
	}
	if _, ok := fields.Metadata["finalizers"]; ok {
		obj.Finalizers = patch.Finalizers
	}
	g.store.put(g.gvr, obj)
	g.store.drop(at)
	return obj, nil
}

// names returns what is left, as "cluster|namespace/name".
func (s *store) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for n := range s.objects {
		names = append(names, n.key.String())
	}
	slices.Sort(names)
	return names
}
