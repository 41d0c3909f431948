package custom

import (
	"context"
	"sync"

	"github.com/kcp-dev/logicalcluster/v3"

	"github.com/regent-project/regent/pkg/clusters"
)

// documentCache has documents that were made, those that were used last. What they may take together is bounded: a
// document of thousands of definitions is tens of megabytes, and each of their changes makes another one.
type documentCache struct {
	mu     sync.Mutex
	recent recent[string, any]
}

func newDocumentCache() *documentCache {
	return &documentCache{recent: newRecent[string, any](maxDocuments, maxDocumentBytes)}
}

// The bounds. What one logical cluster asks for may take half of them.
const (
	maxDocuments     = 256
	maxDocumentBytes = 128 << 20
	listedBytes      = 1 << 10 // about what a definition takes in the list of all resources
)

// get returns a document that the request in ctx asks for.
func (k *documentCache) get(ctx context.Context, key string) (any, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.recent.use(clusterOf(ctx), key)
}

// add keeps a document that the request in ctx has asked for.
func (k *documentCache) add(ctx context.Context, key string, what any, size int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.recent.add(clusterOf(ctx), key, what, size)
}

func clusterOf(ctx context.Context) logicalcluster.Name {
	cluster, _ := clusters.From(ctx)
	return cluster
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
