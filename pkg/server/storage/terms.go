package storage

import (
	"context"
	"errors"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/election/fence"
)

// rememberedTerms bounds how many leases are remembered. For others each write costs one more read.
const rememberedTerms = 1024

// terms remembers at which revision each Lease was last seen, and which term it showed. It may be stale: each write compares
// the revision in its own transaction.
type terms struct {
	leases atomic.Pointer[leases]

	mu        sync.Mutex
	seen      *lru.Cache // sightings by ref(token)
	forgetful bool       // etcd went back: one revision may stand for two states
	// moving has the etcd keys of leases that this process is writing now: their revisions are about to change.
	moving map[string]chan struct{}
}

// longestMove bounds how long a write waits for the renewal of its Lease. Without waiting, all writes that are under way when
// the Lease is renewed would fail once and be tried again.
const longestMove = 100 * time.Millisecond

// sighting is a term, the etcd key of its Lease, and the revision at which the Lease showed the term.
type sighting struct {
	token    fence.Token
	key      string
	revision int64
}

// leases says how to read terms from stored Leases.
type leases struct {
	// decode returns the object that a key holds, decrypted.
	// The guard decodes what it has read itself. A Get through the store of Leases would be one more read, and might show another
	// revision than the one that is compared.
	decode func(ctx context.Context, kv *mvccpb.KeyValue) (runtime.Object, error)
	term   func(runtime.Object) fence.Token
	prefix string // of the resource's keys
	root   string // of the shard's keys in etcd
}

func newTerms() *terms {
	return &terms{seen: lru.New(rememberedTerms), moving: map[string]chan struct{}{}}
}

// errNoLeases is the error of a server that stores no Leases.
var errNoLeases = errors.New("this server stores no leases: it cannot check fencing tokens")

// errUnreadable gives no details of a Lease, because the sender may not be allowed to get it.
var errUnreadable = apierrors.NewInternalError(errors.New("the Lease of the fencing token could not be checked: the server's log says why"))

// find returns the etcd key of the token's Lease.
func (t *terms) find(token fence.Token) (string, error) {
	if last, ok := t.last(token); ok {
		return last.key, nil
	}
	return t.key(token)
}

// revision returns the revision at which the Lease was last seen to show the token's term. 0: it was not.
func (t *terms) revision(token fence.Token) int64 {
	if last, ok := t.last(token); ok && last.token == token {
		return last.revision
	}
	return 0
}

// last returns what was last seen of the token's Lease, whoever held it.
func (t *terms) last(token fence.Token) (sighting, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, ok := t.seen.Get(ref(token))
	if !ok {
		return sighting{}, false
	}
	return last.(sighting), true
}

func (t *terms) key(token fence.Token) (string, error) {
	l := t.leases.Load()
	if l == nil {
		return "", errNoLeases
	}
	key, err := clusters.StorageKey(l.prefix, l.prefix+"/"+token.Namespace+"/"+token.Name, token.Cluster)
	if err != nil {
		return "", err
	}
	return path.Join(l.root, key), nil
}

// read returns the term that a Lease shows, given its key and value in etcd.
func (t *terms) read(ctx context.Context, kv *mvccpb.KeyValue) (fence.Token, error) {
	lease, err := t.leases.Load().decode(ctx, kv)
	if err != nil {
		klog.FromContext(ctx).Error(err, "A Lease in etcd cannot be read, so no write with a token of it is let through: look at the key, and at --encryption-provider-config", "key", string(kv.Key))
		return fence.Token{}, errUnreadable
	}
	return t.learn(lease), nil
}

// learn records a Lease that was read or written, and returns the term that it shows.
func (t *terms) learn(lease runtime.Object) fence.Token {
	shown := t.leases.Load().term(lease)
	version, err := storage.APIObjectVersioner{}.ObjectResourceVersion(lease)
	if err != nil {
		return shown
	}
	revision := int64(version)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.forgetful {
		return shown
	}
	if last, ok := t.seen.Get(ref(shown)); ok && last.(sighting).revision >= revision {
		return shown
	}
	if key, err := t.key(shown); err == nil {
		t.seen.Add(ref(shown), sighting{shown, key, revision})
	}
	return shown
}

// move says that this process is writing the Lease at a storage key, until settled is called.
func (t *terms) move(key string) (settled func()) {
	key = path.Join(t.leases.Load().root, key)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.moving[key] != nil {
		return func() {} // another write of it is under way and will settle
	}
	until := make(chan struct{})
	t.moving[key] = until
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.moving, key)
		close(until)
	}
}

// settle waits, at most for longestMove, while this process writes the Lease at an etcd key.
func (t *terms) settle(ctx context.Context, key string) {
	t.mu.Lock()
	until := t.moving[key]
	t.mu.Unlock()
	if until == nil {
		return
	}
	bound := time.NewTimer(longestMove)
	defer bound.Stop()
	select {
	case <-until:
	case <-bound.C:
	case <-ctx.Done():
	}
}

// forget drops everything and stops remembering: after etcd went back, one revision may stand for two states.
func (t *terms) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetful = true
	t.seen.Clear()
}

// ref returns a token that identifies only the Lease.
func ref(token fence.Token) fence.Token {
	token.UID, token.Holder, token.Epoch = "", "", 0
	return token
}
