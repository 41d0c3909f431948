package bundle

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
)

// Bundle is a bundle that is read. Its methods may be called by any number of goroutines at once, if its file may.
type Bundle struct {
	Header
	// Objects is how many objects it has.
	Objects int

	from  io.ReaderAt
	start int64 // of the bundle in from
	index index
}

// Open finds the bundles in a file, in their order, and reads their headers and indexes. An error that wraps ErrDamaged
// is of a file that is not whole, or that is none of bundles. What it does not find, Each does.
func Open(from io.ReaderAt, size int64) ([]*Bundle, error) {
	var all []*Bundle
	for end := size; end > 0; {
		b, err := open(from, end)
		if err != nil {
			return nil, err
		}
		all = append(all, b)
		end = b.start
	}
	slices.Reverse(all)
	if len(all) == 0 {
		return nil, damaged("the file is empty")
	}
	return all, nil
}

// open reads the bundle that ends at a place of a file.
func open(from io.ReaderAt, end int64) (*Bundle, error) {
	if end < footerBytes {
		return nil, damaged("%d bytes are none", end)
	}
	z, err := gzip.NewReader(io.NewSectionReader(from, end-footerBytes, footerBytes))
	if err != nil {
		return nil, damaged("its last bytes are not those of a bundle: %v", err)
	}
	at, ok := decodePlace(z.Extra)
	if !ok {
		return nil, damaged("its last bytes are not those of a bundle")
	}
	length := at.offset + at.length + footerBytes
	if at.offset <= 0 || at.length <= 0 || at.offset > end || at.length > end || length > end {
		return nil, damaged("its index is said to be at %d", at.offset)
	}
	b := &Bundle{from: from, start: end - length}
	text, err := b.member(chunk{Offset: at.offset, Length: at.length, Bytes: at.bytes, SHA256: at.sum}, maxIndex)
	if err != nil {
		return nil, fmt.Errorf("its index: %w", err)
	}
	var line Line
	if err := json.Unmarshal(text, &line); err != nil || line.Index == nil || len(line.Index.Chunks) == 0 {
		return nil, damaged("its index is none")
	}
	b.index, b.Objects = *line.Index, line.Index.Objects
	return b, b.readHeader(at.offset)
}

// readHeader checks that chunks are one behind the other, up to the index, and reads the header.
func (b *Bundle) readHeader(upTo int64) error {
	at := int64(0)
	for _, c := range b.index.Chunks {
		if c.Offset != at || c.Length <= 0 || c.Length > upTo-at {
			return damaged("a chunk is said to be at %d", c.Offset)
		}
		at += c.Length
	}
	if at != upTo {
		return damaged("its index is at %d, its chunks end at %d", upTo, at)
	}
	text, err := b.member(b.index.Chunks[0], maxChunk)
	if err != nil {
		return err
	}
	first, _, _ := bytes.Cut(text, []byte{'\n'})
	var line Line
	switch err := json.Unmarshal(first, &line); {
	case err != nil || line.Header == nil:
		return damaged("it has no header")
	case line.Header.Version > Version:
		return fmt.Errorf("the bundle has version %d of the format, and this is a program for versions up to %d: use the version of Regent that wrote it, %s, or a newer one",
			line.Header.Version, Version, line.Header.WrittenBy)
	}
	b.Header = *line.Header
	return nil
}

// member reads the lines of a gzip member, and checks them.
func (b *Bundle) member(c chunk, most int64) ([]byte, error) {
	if c.Bytes < 0 || c.Bytes > most {
		return nil, damaged("a part is said to have %d bytes", c.Bytes)
	}
	z, err := gzip.NewReader(io.NewSectionReader(b.from, b.start+c.Offset, c.Length))
	if err != nil {
		return nil, damaged("the part at %d: %v", c.Offset, err)
	}
	text, err := io.ReadAll(io.LimitReader(z, c.Bytes+1))
	if err != nil {
		return nil, damaged("the part at %d: %v", c.Offset, err)
	}
	if int64(len(text)) != c.Bytes || !bytes.Equal(sum(text), c.SHA256) {
		return nil, damaged("the part at %d is not what its sum says", c.Offset)
	}
	return text, nil
}

// Each calls do with all objects, in the order of their keys, until it returns an error. Each part is checked before
// its objects are given, so an error that wraps ErrDamaged may come after some objects: call it with nil first.
func (b *Bundle) Each(do func(Object) error) error {
	last, n := "", 0
	for i, c := range b.index.Chunks {
		err := b.eachOf(c, i == 0, func(o Object) error {
			if o.Key <= last {
				return damaged("%q follows %q", o.Key, last)
			}
			last = o.Key
			n++
			if do == nil {
				return nil
			}
			return do(o)
		})
		if err != nil {
			return err
		}
	}
	if n != b.Objects {
		return damaged("it has %d objects, and should have %d", n, b.Objects)
	}
	return nil
}

func (b *Bundle) eachOf(c chunk, hasHeader bool, do func(Object) error) error {
	text, err := b.member(c, maxChunk)
	if err != nil {
		return err
	}
	for line := range bytes.Lines(text) {
		if hasHeader {
			hasHeader = false
			continue
		}
		var l Line
		if err := json.Unmarshal(line, &l); err != nil || l.Object == nil {
			return damaged("a line of the part at %d is no object", c.Offset)
		}
		if err := CheckKey(l.Key); err != nil {
			return damaged("%v", err)
		}
		if err := do(*l.Object); err != nil {
			return err
		}
	}
	return nil
}

// errFound ends a search.
var errFound = errors.New("found")

// Find returns the object of a key, and false if there is none. It reads one part of the bundle.
func (b *Bundle) Find(key string) (out Object, ok bool, err error) {
	n := sort.Search(len(b.index.Chunks), func(i int) bool { return b.index.Chunks[i].First > key }) - 1
	if n < 0 { // the first part has the header, and perhaps no object
		return Object{}, false, nil
	}
	err = b.eachOf(b.index.Chunks[n], n == 0, func(o Object) error {
		if o.Key == key {
			out = o
			return errFound
		}
		return nil
	})
	if errors.Is(err, errFound) {
		return out, true, nil
	}
	return Object{}, false, err
}
