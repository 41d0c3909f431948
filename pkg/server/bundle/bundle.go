// Package bundle is the format of bundles: all objects of one logical cluster at one revision of its shard's etcd.
//
// A bundle is text that other tools read, too: gzip -dc prints lines of JSON, the first a Header, then an Object each,
// in the order of their keys, and last the index. The lines are in several gzip members, which the index tells with
// their SHA-256, so that one object is found without reading all. The last member has no content: its extra field, with
// the id "RB", says where the index is (a shape known from seekable container layers, "eStargz"). Bundles that follow
// each other in one file are a file of several logical clusters.
//
// The sums find what is damaged. They prove nothing about who has made a bundle.
package bundle

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Path is the URL path, in a logical cluster, at which its shard answers with pages of its bundle.
const Path = "/bundle"

// Version is that of the format. Readers refuse newer ones.
const Version = 1

// Header is what a bundle is of.
type Header struct {
	Version int `json:"version"`
	// Cluster is the name of the logical cluster, Path where it was, and Shard had it.
	Cluster string `json:"cluster"`
	Path    string `json:"path"`
	Shard   string `json:"shard"`
	// Revision is that of the shard's etcd, and Time when it was read.
	Revision int64     `json:"revision"`
	Time     time.Time `json:"time"`
	// WrittenBy is the version of Regent.
	WrittenBy string `json:"writtenBy"`
}

// Object is one object of a logical cluster. It has one of the fields behind Revision.
type Object struct {
	// Key is <group>/<resource>/[<namespace>/]<name>, with "core" for the group without a name. Custom objects are
	// at custom/<group>/<Kind>/[<namespace>/]<name>.
	Key string `json:"key"`
	// Revision is that of the last change.
	Revision int64 `json:"revision"`
	// Object is in the API version that is stored, without a resource version.
	Object json.RawMessage `json:"object,omitempty"`
	// Sealed is Object encrypted for the recipients that the exporter gave: a file of age (age-encryption.org/v1).
	Sealed []byte `json:"sealed,omitempty"`
	// Deleted: every logical cluster has this object until somebody deletes it, and somebody did.
	Deleted bool `json:"deleted,omitempty"`
	// Unreadable says why what is stored could not be decoded.
	Unreadable string `json:"unreadable,omitempty"`
}

// Line is one line of a bundle, or of a page: the answer of a shard has a Header, objects, and a line with Page.
type Line struct {
	Header *Header `json:"bundle,omitempty"`
	*Object
	Index *index `json:"index,omitempty"`
	Page  *Page  `json:"page,omitempty"`
}

// Page ends a page. An answer without it is not whole.
type Page struct {
	// More: there are objects behind the last one.
	More bool `json:"more"`
}

// index tells where what is.
type index struct {
	Chunks  []chunk `json:"chunks"`
	Objects int     `json:"objects"`
}

// chunk is a gzip member with some lines.
type chunk struct {
	Offset int64 `json:"offset"` // of the member, in the bundle
	Length int64 `json:"length"` // of the member
	Bytes  int64 `json:"bytes"`  // of its lines
	// First is the key of its first object, and empty if it has none.
	First  string `json:"first"`
	SHA256 []byte `json:"sha256"` // of its lines
}

const (
	// chunkBytes is how many bytes of lines a chunk has, and as many as its last line has.
	chunkBytes = 1 << 20
	// maxChunk and maxIndex bound what is read of one into memory, whatever the bundle says.
	maxChunk, maxIndex = 32 << 20, 256 << 20
)

// ErrDamaged is of a bundle that is not whole, or was changed.
var ErrDamaged = errors.New("the bundle is damaged: take another copy, or export it again")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w (%s)", ErrDamaged, fmt.Sprintf(format, args...))
}

// CheckKey returns an error for what is no key of an object. Anything may be in etcd.
func CheckKey(key string) error {
	segments := strings.Split(key, "/")
	least := 3
	if segments[0] == "custom" {
		least = 4
	}
	if len(segments) < least || len(segments) > least+1 {
		return fmt.Errorf("key %q has %d segments", key, len(segments))
	}
	for _, s := range segments {
		if s == "" || s == "." || s == ".." || strings.ContainsRune(s, 0) {
			return fmt.Errorf("key %q has the segment %q", key, s)
		}
	}
	return nil
}
