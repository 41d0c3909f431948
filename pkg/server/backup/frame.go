package backup

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"filippo.io/age"

	"github.com/regent-project/regent/pkg/server/bundle"
)

const (
	// maxHead and maxContent bound what is read of one frame into memory, whatever it says.
	maxHead, maxContent = 64 << 10, 1 << 30
)

// compressors are used again: each has more than a megabyte, and a shard that is followed makes two frames a second.
var compressors = sync.Pool{New: func() any { return gzip.NewWriter(io.Discard) }}

// Frame collects the records of one frame. It is for one goroutine.
type Frame struct {
	Head
	content bytes.Buffer
	lines   *gzip.Writer
	sealed  io.WriteCloser
	records *json.Encoder
}

// NewFrame begins a frame for recipients. Its kind is not changed afterwards, but all else of the head may be.
func NewFrame(kind Kind, recipients []age.Recipient) (*Frame, error) {
	f := &Frame{Head: Head{Version: Version, Kind: kind}}
	var err error
	if f.sealed, err = age.Encrypt(&f.content, recipients...); err != nil {
		return nil, fmt.Errorf("seal a frame: %w", err)
	}
	f.lines = compressors.Get().(*gzip.Writer)
	f.lines.Reset(f.sealed)
	f.records = json.NewEncoder(f.lines)
	return f, nil
}

// Add adds a record.
func (f *Frame) Add(r Record) error {
	if r.Unreadable != "" {
		f.Unreadable++
	}
	if err := f.records.Encode(r); err != nil {
		return fmt.Errorf("encode a record: %w", err)
	}
	return nil
}

// WriteTo writes the frame. It is called once, and nothing is added afterwards.
func (f *Frame) WriteTo(to io.Writer) (int64, error) {
	// The head is known last, so it is the last line.
	if err := f.records.Encode(end{&f.Head}); err != nil {
		return 0, fmt.Errorf("encode the head of a frame: %w", err)
	}
	if err := errors.Join(f.lines.Close(), f.sealed.Close()); err != nil {
		return 0, fmt.Errorf("seal a frame: %w", err)
	}
	f.lines.Reset(io.Discard) // so that it holds the frame no longer
	compressors.Put(f.lines)
	h, sum := f.Head, sha256.Sum256(f.content.Bytes())
	h.Bytes, h.SHA256 = int64(f.content.Len()), sum[:]
	line, err := json.Marshal(h)
	if err != nil {
		return 0, fmt.Errorf("encode the head of a frame: %w", err)
	}
	n, err := to.Write(append(line, '\n'))
	if err != nil {
		return int64(n), fmt.Errorf("write a frame: %w", err)
	}
	more, err := f.content.WriteTo(to)
	if err != nil {
		return int64(n) + more, fmt.Errorf("write a frame: %w", err)
	}
	return int64(n) + more, nil
}

// end is the last line of a content.
type end struct {
	Head *Head `json:"head,omitempty"`
}

// Placed is a frame in a file.
type Placed struct {
	Head
	offset int64 // of the content
}

// ReadHeads returns the frames of a file, in their order, and how many bytes whole ones have: a writer that was ended
// leaves a part of a frame at the end. An error wraps ErrDamaged if something else is in it.
func ReadHeads(from io.ReaderAt, size int64) (all []Placed, whole int64, err error) {
	r := bufio.NewReaderSize(nil, 1<<10)
	for whole < size {
		r.Reset(io.NewSectionReader(from, whole, min(size-whole, maxHead)))
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) && int64(len(line)) == size-whole {
			return all, whole, nil
		}
		if err != nil {
			return all, whole, damaged("at byte %d: %v", whole, err)
		}
		h, err := parseHead(line)
		if err != nil {
			return all, whole, fmt.Errorf("at byte %d: %w", whole, err)
		}
		p := Placed{h, whole + int64(len(line))}
		if p.offset+h.Bytes > size {
			return all, whole, nil
		}
		all, whole = append(all, p), p.offset+h.Bytes
	}
	return all, whole, nil
}

// ReadFrame reads a frame, as it is, and checks its sum. Read is how one is read that is in a file.
func ReadFrame(from *bufio.Reader) (h Head, frame []byte, err error) {
	line, err := from.ReadBytes('\n')
	if err != nil {
		return h, nil, damaged("the head of a frame: %v", err)
	}
	if h, err = parseHead(line); err != nil {
		return h, nil, err
	}
	frame = append(frame, line...)
	content, err := io.ReadAll(io.LimitReader(from, h.Bytes))
	if err != nil {
		return h, nil, damaged("the content of a frame: %v", err)
	}
	return h, append(frame, content...), h.verify(content)
}

// verify compares a content with the head's sum.
func (h *Head) verify(content []byte) error {
	if sum := sha256.Sum256(content); int64(len(content)) != h.Bytes || !bytes.Equal(sum[:], h.SHA256) {
		return damaged("the frame at revision %d is not what its sum says", h.Revision)
	}
	return nil
}

// Verify checks the sum of a frame in a file. It needs no identity.
func (p *Placed) Verify(from io.ReaderAt) error {
	_, err := p.content(from)
	return err
}

func (p *Placed) content(from io.ReaderAt) ([]byte, error) {
	content := make([]byte, p.Bytes)
	if _, err := from.ReadAt(content, p.offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the frame at revision %d: %w", p.Revision, err)
	}
	return content, p.verify(content)
}

// Read calls visit with the lines of a frame in a file that may be records of interest: wants is asked with each line,
// and nil wants all. It needs an identity of one of the recipients. An error may come after some records.
func (p *Placed) Read(from io.ReaderAt, identities []age.Identity, wants func(line []byte) bool, visit func(Record) error) error {
	content, err := p.content(from)
	if err != nil {
		return err
	}
	if len(identities) == 0 {
		return bundle.ErrSealed
	}
	opened, err := age.Decrypt(bytes.NewReader(content), identities...)
	var others *age.NoIdentityMatchError
	if errors.As(err, &others) {
		return bundle.ErrSealed
	}
	if err != nil {
		return damaged("open the frame at revision %d: %v", p.Revision, err)
	}
	z, err := gzip.NewReader(opened)
	if err != nil {
		return damaged("open the frame at revision %d: %v", p.Revision, err)
	}
	for lines := bufio.NewReaderSize(z, 64<<10); ; {
		line, err := readLine(lines)
		if err != nil {
			return damaged("the frame at revision %d: %v", p.Revision, err)
		}
		if bytes.HasPrefix(line, []byte(`{"head":`)) {
			return p.checkEnd(line)
		}
		if wants != nil && !wants(line) {
			continue
		}
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			return damaged("a line of the frame at revision %d is no record: %v", p.Revision, err)
		}
		if err := visit(r); err != nil {
			return err
		}
	}
}

// readLine returns a line, which is good until the next one is read if it fits into the reader's buffer.
func readLine(from *bufio.Reader) ([]byte, error) {
	line, err := from.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	begin := bytes.Clone(line)
	rest, err := from.ReadBytes('\n')
	return append(begin, rest...), err
}

// checkEnd compares the head that is sealed with the one that everybody may change.
func (p *Placed) checkEnd(line []byte) error {
	var e end
	if err := json.Unmarshal(line, &e); err != nil || e.Head == nil {
		return damaged("the frame at revision %d has no end", p.Revision)
	}
	outside := p.Head
	outside.Bytes, outside.SHA256 = 0, nil
	if a, b := encoded(outside), encoded(*e.Head); !bytes.Equal(a, b) {
		return damaged("the head of a frame says %s, and was %s", a, b)
	}
	return nil
}

func encoded(h Head) []byte {
	out, _ := json.Marshal(h) // it has no field that fails
	return out
}
