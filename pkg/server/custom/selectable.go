package custom

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"unsafe"
	"weak"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"
)

// maxLooked is how many objects' fields a view keeps: those of the last changes. Each of hundreds of watches by a field
// asks for the fields of each change, and of what was there before it, at about the same time.
const maxLooked = 16

// lookups have the fields by which a view selects, of the objects that it looked into last. They are ready for use. All
// methods may be called at any time on any goroutine.
type lookups struct {
	mu   sync.Mutex
	last [maxLooked]*look
	next int
}

// look is at one object.
type look struct {
	at     storedBytes
	once   sync.Once
	fields fields.Set // shortened
	err    error
}

// storedBytes are the bytes of an object, by where they are. They do not keep these from being collected, and are equal
// to no others then.
type storedBytes struct {
	first weak.Pointer[byte]
	size  int
}

// of returns the shortened fields of stored bytes. They are found once for all who ask at the same time, or soon after.
func (l *lookups) of(raw string, find func() (fields.Set, error)) (fields.Set, error) {
	one := l.at(storedBytes{weak.Make(unsafe.StringData(raw)), len(raw)})
	one.once.Do(func() {
		var found fields.Set
		if found, one.err = find(); one.err == nil {
			one.fields = shortened(found)
		}
	})
	return one.fields, one.err
}

func (l *lookups) at(bytes storedBytes) *look {
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

// longestKept is the length of the longest values of fields that are kept as they are. Tenants choose values, which may
// be as large as objects.
const longestKept = 64

// shorten returns what stands for a value: equal values have equal ones, and others have others.
func shorten(value string) string {
	if len(value) <= longestKept {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	return "#" + hex.EncodeToString(sum[:]) // longer than a value that is kept as it is
}

func shortened(set fields.Set) fields.Set {
	out := make(fields.Set, len(set))
	for field, value := range set {
		out[field] = shorten(value)
	}
	return out
}

// shortenedIn returns a selector that selects by shortened values.
func shortenedIn(of fields.Selector) fields.Selector {
	terms := []fields.Selector{}
	for _, r := range of.Requirements() {
		if r.Operator == selection.NotEquals {
			terms = append(terms, fields.OneTermNotEqualSelector(r.Field, shorten(r.Value)))
		} else {
			terms = append(terms, fields.OneTermEqualSelector(r.Field, shorten(r.Value)))
		}
	}
	return fields.AndSelectors(terms...)
}
