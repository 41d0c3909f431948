package bundle

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// Writer writes one bundle. It is for one goroutine.
type Writer struct {
	to      io.Writer
	written int64
	lines   bytes.Buffer // of the next chunk
	first   string       // key in it
	last    string       // key of all
	index   index
}

// NewWriter begins a bundle. Call Close, or the bundle is not whole.
func NewWriter(to io.Writer, h Header) (*Writer, error) {
	h.Version = Version
	w := &Writer{to: to}
	return w, w.add(Line{Header: &h})
}

// Add adds an object, whose key is behind that of the last one.
func (w *Writer) Add(o Object) error {
	if err := CheckKey(o.Key); err != nil {
		return err
	}
	if o.Key <= w.last {
		return fmt.Errorf("key %q is not behind %q", o.Key, w.last)
	}
	if w.first == "" {
		w.first = o.Key
	}
	w.last = o.Key
	w.index.Objects++
	return w.add(Line{Object: &o})
}

func (w *Writer) add(l Line) error {
	line, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encode a line of the bundle: %w", err)
	}
	if len(line) > maxChunk-chunkBytes {
		return fmt.Errorf("a line of the bundle would have %d bytes, the most are %d", len(line), maxChunk-chunkBytes)
	}
	w.lines.Write(line)
	w.lines.WriteByte('\n')
	if w.lines.Len() < chunkBytes {
		return nil
	}
	return w.flush()
}

// flush writes a chunk.
func (w *Writer) flush() error {
	if w.lines.Len() == 0 {
		return nil
	}
	c := chunk{Offset: w.written, Bytes: int64(w.lines.Len()), First: w.first, SHA256: sum(w.lines.Bytes())}
	if err := w.member(w.lines.Bytes(), nil); err != nil {
		return err
	}
	c.Length = w.written - c.Offset
	w.index.Chunks = append(w.index.Chunks, c)
	w.lines.Reset()
	w.first = ""
	return nil
}

// Close writes the index. The bundle is whole when it returns nil.
func (w *Writer) Close() error {
	if err := w.flush(); err != nil {
		return err
	}
	line, err := json.Marshal(Line{Index: &w.index})
	if err != nil {
		return fmt.Errorf("encode the index of the bundle: %w", err)
	}
	line = append(line, '\n')
	at := w.written
	if err := w.member(line, nil); err != nil {
		return err
	}
	return w.member(nil, place{offset: at, length: w.written - at, bytes: int64(len(line)), sum: sum(line)}.encode())
}

// member writes one gzip member.
func (w *Writer) member(content, extra []byte) error {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	z.Extra = extra
	if _, err := z.Write(content); err != nil {
		return fmt.Errorf("compress the bundle: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("compress the bundle: %w", err)
	}
	n, err := w.to.Write(out.Bytes())
	w.written += int64(n)
	if err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	return nil
}

func sum(data []byte) []byte {
	s := sha256.Sum256(data)
	return s[:]
}

// place is where the index is. The last member has it in its extra field.
type place struct {
	offset, length, bytes int64
	sum                   []byte
}

const (
	placeID    = "RB"
	placeBytes = 3*8 + sha256.Size
	// footerBytes is the length of the last member: gzip's header, the extra field, an empty stored block or fixed
	// block, the sum and the length.
	footerBytes = 10 + 2 + 4 + placeBytes + 5 + 8
)

func (p place) encode() []byte {
	out := append([]byte(placeID), 0, 0)
	binary.LittleEndian.PutUint16(out[2:], placeBytes)
	for _, n := range []int64{p.offset, p.length, p.bytes} {
		out = binary.LittleEndian.AppendUint64(out, uint64(n)) //nolint:gosec // no length is negative
	}
	return append(out, p.sum...)
}

// decodePlace is the inverse of encode. ok is false for whatever is none.
func decodePlace(extra []byte) (p place, ok bool) {
	if len(extra) != 4+placeBytes || string(extra[:2]) != placeID || binary.LittleEndian.Uint16(extra[2:]) != placeBytes {
		return place{}, false
	}
	for i, n := range []*int64{&p.offset, &p.length, &p.bytes} {
		*n = int64(binary.LittleEndian.Uint64(extra[4+8*i:])) //nolint:gosec // who reads it checks it
	}
	p.sum = extra[4+3*8:]
	return p, true
}
