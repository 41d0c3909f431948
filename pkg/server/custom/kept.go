package custom

import (
	"container/list"
	"context"
	"sync"
)

// kept has documents that were made, those that were used last. What they may take together is bounded: a document of thousands of definitions is tens of
// megabytes, and each of their changes makes another one.
type kept struct {
	mu     sync.Mutex
	recent list.List // of keptDocument, the one used last in front
	at     map[string]*list.Element
	size   int
}

// The bounds.
const (
	maxDocuments     = 256
	maxDocumentBytes = 128 << 20
	listedBytes      = 1 << 10 // about what a definition takes in the list of all resources
)

type keptDocument struct {
	key  string
	what any
	size int
}

func (k *kept) get(key string) (any, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.at[key]
	if e == nil {
		return nil, false
	}
	k.recent.MoveToFront(e)
	return e.Value.(keptDocument).what, true
}

// add keeps a document in place of those that were not used for longest.
func (k *kept) add(key string, what any, size int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.at[key]; e != nil {
		k.remove(e)
	}
	if k.at == nil {
		k.at = map[string]*list.Element{}
	}
	k.at[key] = k.recent.PushFront(keptDocument{key, what, size})
	k.size += size
	for k.recent.Len() > 1 && (k.recent.Len() > maxDocuments || k.size > maxDocumentBytes) {
		k.remove(k.recent.Back())
	}
}

func (k *kept) remove(e *list.Element) {
	gone := k.recent.Remove(e).(keptDocument)
	delete(k.at, gone.key)
	k.size -= gone.size
}

// making has the documents that are being made.
type making struct {
	mu sync.Mutex
	at map[string]*underWay
}

type underWay struct {
	place chan struct{} // has room for who makes it
	users int           // who makes it or waits; making.mu guards it
}

// lock returns when nobody else makes a document, with a function that says that it is made; or with ctx's error, when
// that ends before.
func (m *making) lock(ctx context.Context, key string) (unlock func(), err error) {
	m.mu.Lock()
	if m.at == nil {
		m.at = map[string]*underWay{}
	}
	of := m.at[key]
	if of == nil {
		of = &underWay{place: make(chan struct{}, 1)}
		m.at[key] = of
	}
	of.users++
	m.mu.Unlock()
	leave := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if of.users--; of.users == 0 {
			delete(m.at, key)
		}
	}
	select {
	case of.place <- struct{}{}:
		return func() { <-of.place; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}

// sizeOf returns the size of definitions together.
func sizeOf(definitions []*Definition) (size int) {
	for _, d := range definitions {
		size += d.size
	}
	return size
}
