package storage

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
)

// sharing makes objects that are decoded for the watch cache share what is equal in them: names, maps of annotations
// and labels, and managedFields. Clusters have much in common: each has a namespace default with the same objects, and
// all objects of a cluster have one annotation with its name. A replica would hold that again for each object, twice as
// much as the rest of a small object.
//
// Nobody may modify what is shared, as nobody may modify what the watch cache holds. What is decoded for an update is
// not shared, because updates modify it.
type sharing struct {
	runtime.Codec
	// more shares what objects of a resource have in common beside their metadata (see Encoding.Share). Nil:
	// nothing.
	more func([]byte) ([]byte, func(runtime.Object))
}

// Decode implements runtime.Decoder.
func (s sharing) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	complete := func(runtime.Object) {}
	if s.more != nil {
		data, complete = s.more(data)
	}
	obj, kind, err := s.Codec.Decode(data, defaults, into)
	if err != nil {
		return obj, kind, err
	}
	if of, ok := obj.(metav1.ObjectMetaAccessor); ok {
		if meta, ok := of.GetObjectMeta().(*metav1.ObjectMeta); ok {
			share(meta)
		}
	}
	complete(obj)
	return obj, kind, nil
}

// decoder decodes items of lists as codec does, and single objects as its Decoder does.
type decoder struct {
	etcd3.Decoder
	items etcd3.Decoder
}

// DecodeListItem implements etcd3.Decoder.
func (d decoder) DecodeListItem(ctx context.Context, data []byte, rev uint64, newItem func() runtime.Object) (runtime.Object, error) {
	return d.items.DecodeListItem(ctx, data, rev, newItem)
}

// share replaces parts of metadata by equal ones that others have, too.
func share(meta *metav1.ObjectMeta) {
	meta.Name, meta.Namespace = shareString(meta.Name), shareString(meta.Namespace)
	meta.Annotations, meta.Labels = shareMap(meta.Annotations), shareMap(meta.Labels)
	for n := range meta.ManagedFields {
		entry := &meta.ManagedFields[n]
		for _, s := range []*string{&entry.Manager, (*string)(&entry.Operation), &entry.APIVersion, &entry.FieldsType, &entry.Subresource} {
			*s = shareString(*s)
		}
		entry.FieldsV1 = shareFields(entry.FieldsV1)
	}
}

// shareAttrs has the fields by which the watch cache selects an object shared among objects of the same name in all
// clusters.
func shareAttrs(attrs storage.AttrFunc) storage.AttrFunc {
	return func(obj runtime.Object) (labels.Set, fields.Set, error) {
		l, f, err := attrs(obj)
		return l, shareMap(f), err
	}
}
