package custom

import (
	"sync"
	"unsafe"
	"weak"

	"k8s.io/apimachinery/pkg/fields"
)

const (
	// maxLooked is how many objects' fields a view keeps: those of the last changes. Each of hundreds of watches by a
	// field asks for the fields of each change, and of what was there before it, at about the same time.
	maxLooked = 16
	// maxLookedBytes is how large the fields of an object may be that are kept.
	maxLookedBytes = 4 << 10
)

// looked has the fields by which a view selects, of the objects that it looked into last. It is ready for use. All
// methods may be called at any time on any goroutine.
type looked struct {
	mu   sync.Mutex
	last [maxLooked]*look
	next int
}

// look is at one object.
type look struct {
	at   storedBytes
	once sync.Once
	// What was found. kept says that it is kept for others.
	fields fields.Set
	err    error
	kept   bool
}

// storedBytes are the bytes of an object, by where they are. They do not keep these from being collected, and are equal
// to no others then.
type storedBytes struct {
	first weak.Pointer[byte]
	size  int
}

// of returns the fields of stored bytes. They are found once for all who ask at the same time, or soon after.
func (l *looked) of(raw string, find func() (fields.Set, error)) (fields.Set, error) {
	one := l.at(storedBytes{weak.Make(unsafe.StringData(raw)), len(raw)})
	var found fields.Set
	var err error
	did := false
	one.once.Do(func() {
		did = true
		found, err = find()
		if one.kept = sizeOfFields(found) <= maxLookedBytes; one.kept {
			one.fields, one.err = found, err
		}
	})
	switch {
	case did:
		return found, err
	case one.kept:
		return one.fields, one.err
	default:
		return find()
	}
}

func (l *looked) at(bytes storedBytes) *look {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.last {
		if one != nil && one.at == bytes {
			return one
		}
	}
	one := &look{at: bytes}
	l.last[l.next] = one
	l.next = (l.next + 1) % maxLooked
	return one
}

func sizeOfFields(set fields.Set) (size int) {
	for name, value := range set {
		size += len(name) + len(value)
	}
	return size
}
