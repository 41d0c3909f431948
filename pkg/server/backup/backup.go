// Package backup is the format of a shard's backup: frames, each with a part of what the shard stores, sealed.
//
// A frame is a line of JSON, its Head, and behind it so many bytes of content: a file of age (age-encryption.org/v1)
// for the recipients that the shard's operator has given, in it gzip, and in that lines of JSON, a Record each and
// last the Head again. A program that follows a shard and keeps frames cannot read them.
//
// Frames are of two kinds. Those of a base have what is stored, in the order of places, each frame as it was at its own
// revision. Those of changes have what was written behind the revision of the frame before. Both together are the
// shard at any revision between: take the base, and of each object its newest record.
package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/regent-project/regent/pkg/server/bundle"
)

// Version is that of the format. Readers refuse newer ones.
const Version = 1

// Kind says what a frame is a part of.
type Kind string

const (
	// Base is what was stored. Its frames follow each other up to the one without More.
	Base Kind = "base"
	// Changes are what was written.
	Changes Kind = "changes"
)

// Head says what a frame has. It names no objects.
type Head struct {
	Version int    `json:"version"`
	Kind    Kind   `json:"kind"`
	Shard   string `json:"shard"`
	// After is the revision behind which a frame of changes begins.
	After int64 `json:"after,omitempty"`
	// Revision is that of the shard's etcd at which a frame of a base was read, or up to which a frame has all
	// changes.
	Revision int64 `json:"revision"`
	// Time is that of the replica when Revision was the newest one, or a moment later. A frame of changes has none
	// if there were more changes already.
	Time time.Time `json:"time,omitzero"`
	// Etcd names the shard's etcd, and Raft is its term: in the frames of one history Etcd is the same, and Raft
	// never falls.
	Etcd uint64 `json:"etcd"`
	Raft uint64 `json:"raft"`
	// First says among which objects the first one of a base's frame is: their resource, and behind a slash the
	// logical cluster.
	First string `json:"first,omitempty"`
	// Unreadable is how many records have no content because it could not be decoded, or decrypted.
	Unreadable int `json:"unreadable,omitempty"`
	// More: the base has another frame.
	More bool `json:"more,omitempty"`
	// WrittenBy is the version of Regent.
	WrittenBy string `json:"writtenBy"`
	// Bytes is the length of the content, and SHA256 its sum. The copy in the content has neither.
	Bytes  int64  `json:"bytes,omitempty"`
	SHA256 []byte `json:"sha256,omitempty"`
}

// Record is an object of a logical cluster, as in a bundle, or the deletion of one.
type Record struct {
	// Cluster is the first field of a line, so that records of others are passed over unread.
	Cluster string `json:"cluster"`
	bundle.Object
	// Secret: a bundle has it sealed.
	Secret bool `json:"secret,omitempty"`
	// Gone: it was deleted from etcd, at Revision.
	Gone bool `json:"gone,omitempty"`
}

// Answer is the first line of what a replica answers. The frame is behind it.
type Answer struct {
	// Next is where the next frame of a base begins. Empty: there is none.
	Next string `json:"next,omitempty"`
}

// ErrDamaged is of frames that are not whole, or were changed.
var ErrDamaged = errors.New("the backup is damaged")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w (%s)", ErrDamaged, fmt.Sprintf(format, args...))
}

// MayHave reports whether a frame of a base that begins at first, and is followed by one that begins at next (empty: by
// none), may have objects of a logical cluster.
func MayHave(first, next, cluster string) bool {
	at, of := cutCluster(first)
	upTo, last := cutCluster(next)
	// The slash is a part of the order: places are keys.
	return at != upTo || of+"/" <= cluster+"/" && cluster+"/" <= last+"/"
}

func cutCluster(place string) (resource, cluster string) {
	n := strings.LastIndex(place, "/")
	return place[:n+1], place[n+1:]
}

// IsOf returns an error if a frame is not of the shard and the etcd of another one.
func (h *Head) IsOf(other *Head) error {
	switch {
	case h.Shard != other.Shard:
		return fmt.Errorf("the backup is of shard %s, and shard %s answers: give each shard a directory of its own", other.Shard, h.Shard)
	case h.Etcd != other.Etcd:
		return h.otherHistory(other)
	}
	return nil
}

// Follows returns an error if a frame cannot be of the same history as an earlier one.
func (h *Head) Follows(earlier *Head) error {
	if h.Raft < earlier.Raft || h.Revision < earlier.Revision {
		return h.otherHistory(earlier)
	}
	return h.IsOf(earlier)
}

func (h *Head) otherHistory(earlier *Head) error {
	return fmt.Errorf("the shard's etcd was restored, or replaced: it is at revision %d, and the backup goes up to revision %d of another history: begin a new backup in another directory",
		h.Revision, earlier.Revision)
}

func (h *Head) check() error {
	switch {
	case h.Version > Version:
		return fmt.Errorf("the backup has version %d of the format, and this is a program for versions up to %d: use the version of Regent that wrote it, %s, or a newer one",
			h.Version, Version, h.WrittenBy)
	case h.Version < 1, h.Kind != Base && h.Kind != Changes, h.Bytes <= 0, h.Bytes > maxContent, h.Revision <= 0, h.Kind == Changes && h.After > h.Revision:
		return damaged("the head of a frame is none: kind %q, revision %d behind %d, %d bytes", h.Kind, h.Revision, h.After, h.Bytes)
	}
	return nil
}

func parseHead(line []byte) (h Head, err error) {
	if err := json.Unmarshal(line, &h); err != nil {
		return h, damaged("the head of a frame is none: %v", err)
	}
	return h, h.check()
}
