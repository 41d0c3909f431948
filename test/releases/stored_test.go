package releases_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/regent-project/regent/pkg/server/apis"
	"github.com/regent-project/regent/test/releases"
)

// entry is a value in etcd.
type entry struct {
	revision int64
	encoding string // how it is encrypted, and encoded
	value    []byte // as it is in etcd
	fields   map[string]any
}

// encodings are what values begin with, and a resource that is encrypted so.
var encodings = map[string]string{"k8s:enc:secretbox:v1:one:": "secrets", "k8s:enc:aescbc:v1:two:": "configmaps"}

var proto = []byte("k8s\x00")

// stored reads all that is in etcd.
func (r *reader) stored(encryption string) map[string]entry {
	r.Helper()
	keys, err := encryptionconfig.LoadEncryptionConfig(r.Context(), encryption, true, "test")
	if err != nil {
		r.Fatal(err)
	}
	resp, err := r.etcd.Get(r.Context(), releases.Prefix+"/", clientv3.WithPrefix())
	if err != nil {
		r.Fatal(err)
	}
	out := map[string]entry{}
	for _, kv := range resp.Kvs {
		key, e, plain := string(kv.Key), entry{revision: kv.ModRevision, value: kv.Value}, kv.Value
		for prefix, resource := range encodings {
			if bytes.HasPrefix(plain, []byte(prefix)) {
				e.encoding = prefix
				of := keys.Transformers[schema.GroupResource{Resource: resource}]
				if plain, _, err = of.TransformFromStorage(r.Context(), plain, value.DefaultContext(key)); err != nil {
					r.Fatalf("%s: %v", key, err)
				}
			}
		}
		if !internal(key) {
			e.encoding += string(plain[:min(len(plain), len(`{"kind":"`))])
			if bytes.HasPrefix(plain, proto) {
				object, _, err := apis.Codecs.UniversalDeserializer().Decode(plain, nil, nil)
				if err != nil {
					r.Fatalf("%s: %v", key, err)
				}
				if plain, err = json.Marshal(object); err != nil {
					r.Fatal(err)
				}
			}
			object := map[string]any{}
			if err := json.Unmarshal(plain, &object); err != nil {
				r.Fatalf("%s: %v in %q", key, err, plain)
			}
			e.fields = fields(object)
		}
		out[key] = e
	}
	return out
}

// internal reports whether a key is no object's.
func internal(key string) bool { return strings.HasPrefix(key, releases.Prefix+"/.") }

// storesAs compares what is in etcd with what the release had stored: under each key the same, in the same encoding and
// version, with the change and no field more. So a release reads what this version has written as it reads its own.
func (r *reader) storesAs(was, is map[string]entry) {
	r.Helper()
	ways := map[string]int{}
	for _, key := range slices.Sorted(maps.Keys(was)) {
		a, b := was[key], is[key]
		switch {
		case ownKey(key):
			continue
		case internal(key):
			if !bytes.Equal(a.value, b.value) {
				r.Errorf("%s was %q, and is %q", key, a.value, b.value)
			}
			continue
		case b.revision <= a.revision:
			r.Errorf("%s was not changed: what is stored there is not served, or nobody may change it", key)
			continue
		case a.encoding != b.encoding:
			r.Errorf("%s was stored as %q, and is as %q", key, a.encoding, b.encoding)
		}
		ways[a.encoding]++
		for field := range union(a.fields, b.fields) {
			if strings.HasPrefix(field, "metadata.managedFields") || field == annotations+changed || reflect.DeepEqual(a.fields[field], b.fields[field]) {
				continue
			}
			r.Errorf("%s: %s was stored as %v, and is as %v", key, field, a.fields[field], b.fields[field])
		}
	}
	for prefix := range encodings {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(ways)), func(way string) bool { return strings.HasPrefix(way, prefix) }) {
			r.Errorf("nothing is encrypted as %s", prefix)
		}
	}
	if len(ways) < 4 {
		r.Errorf("what is stored is encoded in these ways only: %v", ways)
	}
}

// ownKey is own, of a key.
func ownKey(key string) bool {
	return strings.Contains(key, "/leases/system:admin/") || strings.Contains(key, "/configmaps/system:admin/kube-system/regent-terms-") || strings.Contains(key, "/events/system:admin/")
}

// tells compares what the replica tells of the terms with what the release did: the same, and that the last one has
// ended.
func (r *reader) tells(was []map[string]any) {
	r.Helper()
	_, answer := r.replica.Get("/regent/v1/terms")
	is, err := releases.Terms(answer)
	if err != nil {
		r.Fatal(err)
	}
	for n, term := range was {
		at := slices.IndexFunc(is, func(other map[string]any) bool { return other["holder"] == term["holder"] })
		if at < 0 {
			r.Errorf("the term %v is not told: %v", term, is)
			continue
		}
		for name, value := range term {
			if !reflect.DeepEqual(is[at][name], value) {
				r.Errorf("%s of term %v was %v, and is %v", name, term["epoch"], value, is[at][name])
			}
		}
		if n == 0 && is[at]["ended"] == nil {
			r.Errorf("the release's last term has not ended: %v", is[at])
		}
	}
}
