package apis

import (
	"bytes"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
)

// storedCodecs decode what the storage has written. They do not parse an object of JSON once more to find out its kind,
// as upstream's do: that was a fifth of decoding, which is most of what a replica does at its start with many objects.
type storedCodecs struct{ serializer.CodecFactory }

// SupportedMediaTypes implements runtime.StorageSerializer.
func (c storedCodecs) SupportedMediaTypes() []runtime.SerializerInfo {
	infos := slices.Clone(c.CodecFactory.SupportedMediaTypes())
	for i := range infos {
		if infos[i].MediaType == runtime.ContentTypeJSON {
			infos[i].Serializer = json.NewSerializerWithOptions(leadingKind{}, Scheme, Scheme, json.SerializerOptions{})
		}
	}
	return infos
}

// leadingKind finds the kind of an object in its first bytes, where Go's types have it. What others have put into etcd
// may begin otherwise: that is parsed.
type leadingKind struct{ json.SimpleMetaFactory }

// Interpret implements json.MetaFactory.
func (m leadingKind) Interpret(data []byte) (*schema.GroupVersionKind, error) {
	kind, rest, ok := leading(data, `{"kind":"`)
	if !ok {
		return m.SimpleMetaFactory.Interpret(data)
	}
	version, rest, ok := leading(rest, `,"apiVersion":"`)
	if !ok || len(rest) == 0 || rest[0] != ',' && rest[0] != '}' {
		return m.SimpleMetaFactory.Interpret(data)
	}
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		return nil, err
	}
	return &schema.GroupVersionKind{Group: gv.Group, Version: gv.Version, Kind: kind}, nil
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
