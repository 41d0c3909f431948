package apis

import (
	"bytes"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// storedCodecs decode what the storage has written. Decoding is most of what a replica does at its start with many
// objects. An object of JSON is not parsed once more to find out its kind, as upstream's codecs do, and it is parsed by
// a quicker decoder.
type storedCodecs struct{ serializer.CodecFactory }

// SupportedMediaTypes implements runtime.StorageSerializer.
func (c storedCodecs) SupportedMediaTypes() []runtime.SerializerInfo {
	infos := slices.Clone(c.CodecFactory.SupportedMediaTypes())
	for i := range infos {
		if infos[i].MediaType == runtime.ContentTypeJSON {
			infos[i].Serializer = quick{json.NewSerializerWithOptions(leadingKind{}, Scheme, Scheme, json.SerializerOptions{})}
		}
	}
	return infos
}

// leadingKind finds the kind of an object in its first bytes, where Go's types have it. What others have put into etcd
// may begin otherwise: that is parsed.
type leadingKind struct{ json.SimpleMetaFactory }

// Interpret implements json.MetaFactory.
func (m leadingKind) Interpret(data []byte) (*schema.GroupVersionKind, error) {
	if kind, ok := plainKind(data); ok {
		return &kind, nil
	}
	return m.SimpleMetaFactory.Interpret(data)
}

// plainKind returns the kind that the first bytes of an object tell. It is not ok if they are not what Go's types begin
// with.
func plainKind(data []byte) (none schema.GroupVersionKind, ok bool) {
	kind, rest, ok := leading(data, `{"kind":"`)
	if !ok {
		return none, false
	}
	version, rest, ok := leading(rest, `,"apiVersion":"`)
	if !ok || len(rest) == 0 || rest[0] != ',' && rest[0] != '}' {
		return none, false
	}
	gv, err := schema.ParseGroupVersion(version)
	return gv.WithKind(kind), err == nil && kind != "" && gv.Version != ""
}

// leading returns the string that follows a prefix, and what follows its quote. It is not ok if the string is not as
// plain as names are.
func leading(data []byte, prefix string) (text string, rest []byte, ok bool) {
	data, ok = bytes.CutPrefix(data, []byte(prefix))
	if !ok {
		return "", nil, false
	}
	plain, rest, ok := bytes.Cut(data, []byte{'"'})
	if !ok || bytes.IndexFunc(plain, func(r rune) bool { return r <= ' ' || r == '\\' || r > '~' }) >= 0 {
		return "", nil, false
	}
	return string(plain), rest, true
}
