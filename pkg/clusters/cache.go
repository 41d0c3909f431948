package clusters

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Cache is what controllers need of an Informer. Its methods are an Informer's.
type Cache[T Object] interface {
	Synced() <-chan struct{}
	Get(Key) (T, bool)
	Page(of Range, after Key, n int) (page []T, next Key)
	ByIndex(index, value string) []T
	Recent(of Range, visit Handler[T])
	Follow(of Range, h Handler[T]) (remove func())
	Handlers() int
}

// MetadataOf returns a view of an informer's objects that has only their metadata. It takes no memory: an object's
// metadata is copied when it is asked for, and shares all but its fields with the object.
func MetadataOf[T interface {
	Object
	metav1.ObjectMetaAccessor
}](inf *Informer[T]) Cache[*metav1.PartialObjectMetadata] {
	return metadataOf[T]{inf}
}

type metadataOf[T interface {
	Object
	metav1.ObjectMetaAccessor
}] struct{ of *Informer[T] }

func (m metadataOf[T]) Synced() <-chan struct{} { return m.of.Synced() }

func (m metadataOf[T]) Handlers() int { return m.of.Handlers() }

func (m metadataOf[T]) Get(k Key) (*metav1.PartialObjectMetadata, bool) {
	obj, ok := m.of.Get(k)
	return m.one(obj), ok
}

func (m metadataOf[T]) Page(of Range, after Key, n int) ([]*metav1.PartialObjectMetadata, Key) {
	page, next := m.of.Page(of, after, n)
	return m.all(page), next
}

func (m metadataOf[T]) ByIndex(index, value string) []*metav1.PartialObjectMetadata {
	return m.all(m.of.ByIndex(index, value))
}

func (m metadataOf[T]) Recent(of Range, visit Handler[*metav1.PartialObjectMetadata]) {
	m.of.Recent(of, m.handler(visit))
}

func (m metadataOf[T]) Follow(of Range, h Handler[*metav1.PartialObjectMetadata]) (remove func()) {
	return m.of.Follow(of, m.handler(h))
}

func (m metadataOf[T]) handler(h Handler[*metav1.PartialObjectMetadata]) Handler[T] {
	return func(old, new T) { h(m.one(old), m.one(new)) }
}

func (m metadataOf[T]) all(objs []T) []*metav1.PartialObjectMetadata {
	out := make([]*metav1.PartialObjectMetadata, len(objs))
	for i, obj := range objs {
		out[i] = m.one(obj)
	}
	return out
}

// one returns nil for no object.
func (m metadataOf[T]) one(obj T) *metav1.PartialObjectMetadata {
	var none T
	if any(obj) == any(none) {
		return nil
	}
	return Metadata(obj)
}

// Metadata returns the metadata of an object, without managedFields, which no controller reads. It shares the rest with
// the object.
func Metadata(obj metav1.ObjectMetaAccessor) *metav1.PartialObjectMetadata {
	meta, ok := obj.GetObjectMeta().(*metav1.ObjectMeta)
	if !ok {
		panic(fmt.Sprintf("clusters: the metadata of %T is a %T: API types have a metav1.ObjectMeta", obj, obj.GetObjectMeta()))
	}
	out := &metav1.PartialObjectMetadata{ObjectMeta: *meta}
	out.ManagedFields = nil
	return out
}

var (
	_ Cache[*metav1.PartialObjectMetadata] = (*Informer[*metav1.PartialObjectMetadata])(nil)
	_ Cache[*metav1.PartialObjectMetadata] = metadataOf[*metav1.PartialObjectMetadata]{}
)
