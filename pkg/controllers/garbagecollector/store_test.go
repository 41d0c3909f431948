package garbagecollector

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
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
	// kinds are those that definitions may make, with custom for the objects of all of them.
	kinds       map[schema.GroupVersionResource]schema.GroupVersionKind
	custom      *controllertest.Source[*clusters.CustomObject]
	definitions *controllertest.Source[*apiextensionsv1.CustomResourceDefinition]
}

func newStore(resources ...controllers.Resource) *store {
	s := &store{
		sources: map[schema.GroupVersionResource]*controllertest.Source[*metav1.PartialObjectMetadata]{},
		objects: map[node]*metav1.PartialObjectMetadata{},
		gone:    make(chan node, 100),
		kinds:   map[schema.GroupVersionResource]schema.GroupVersionKind{},
		custom:  controllertest.NewSource[*clusters.CustomObject](), definitions: controllertest.NewSource[*apiextensionsv1.CustomResourceDefinition](),
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

// all returns informers of the store, with definitions and custom objects.
func (s *store) all(t *testing.T) controllers.Informers {
	return controllertest.WithCustom(t, controllers.Informers{Metadata: s.informers(t)}, s.definitions, s.custom)
}

// put stores the object and returns it as stored. The store is locked, or not yet shared.
func (s *store) put(gvr schema.GroupVersionResource, obj *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	var stored *metav1.PartialObjectMetadata
	if kind, ok := s.kinds[gvr]; ok {
		set := s.custom.Set(&clusters.CustomObject{TypeMeta: metav1.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind}, ObjectMeta: obj.ObjectMeta})
		stored = &metav1.PartialObjectMetadata{ObjectMeta: set.ObjectMeta}
	} else {
		stored = s.sources[gvr].Set(obj)
	}
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
		if kind, ok := s.kinds[at.resource]; ok {
			s.custom.Delete(clusters.CustomKey(at.key.Cluster, kind.GroupKind(), at.key.Namespace, at.key.Name))
		} else {
			s.sources[at.resource].Delete(at.key)
		}
		s.gone <- at
	}
}

func (s *store) get(at node) (*metav1.PartialObjectMetadata, error) {
	if err := s.serves(at); err != nil {
		return nil, err
	}
	obj, ok := s.objects[at]
	if !ok {
		return nil, apierrors.NewNotFound(at.resource.GroupResource(), at.key.Name)
	}
	return obj.DeepCopy(), nil
}

var definitionsResource = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

// define has a cluster define a kind: its objects are served from then on.
func (s *store) define(cluster, kind string, scope apiextensionsv1.ResourceScope) schema.GroupVersionResource {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.definitions.Set(controllertest.Definition(cluster, "example.com", kind, scope))
	gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: d.Spec.Names.Plural}
	s.kinds[gvr] = gvr.GroupVersion().WithKind(kind)
	s.objects[node{resource: definitionsResource, key: clusters.KeyOf(d)}] = &metav1.PartialObjectMetadata{ObjectMeta: d.ObjectMeta}
	return gvr
}

// undefine ends that. Informers hear of it.
func (s *store) undefine(cluster string, gvr schema.GroupVersionResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := definitionOf(logicalcluster.Name(cluster), gvr)
	delete(s.objects, node{resource: definitionsResource, key: key})
	s.definitions.Delete(key)
}

func definitionOf(cluster logicalcluster.Name, gvr schema.GroupVersionResource) clusters.Key {
	return clusters.Key{Cluster: cluster, Name: gvr.GroupResource().String()}
}

// serves returns what a server says of a resource that the cluster does not define.
func (s *store) serves(at node) error {
	if _, custom := s.kinds[at.resource]; !custom || s.objects[node{resource: definitionsResource, key: definitionOf(at.key.Cluster, at.resource)}] != nil {
		return nil
	}
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", at.resource.GroupResource(), at.key.Name, "404 page not found", 0, true)
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
	if err := g.store.serves(at); err != nil {
		return nil, err
	}
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
		if n.resource == definitionsResource {
			continue
		}
		names = append(names, n.key.String())
	}
	slices.Sort(names)
	return names
}
