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

// rememberedTerms bounds the leases of which it is remembered who holds them. The others cost a read for each write.
const rememberedTerms = 1024

// terms knows at which revisions leases were last seen, and whose they were. It may be late: what it says is compared
// with etcd in the transaction of each write.
type terms struct {
	leases atomic.Pointer[leases]

	mu        sync.Mutex
	seen      *lru.Cache // sighting by fence.Token without holder and epoch
	forgetful bool       // etcd went back: revisions say nothing any more
	// moving are the leases, by etcd key, that this process is writing: their revisions are about to change.
	moving map[string]chan struct{}
}

// longestMove bounds how long a write waits for the renewal of its lease. Without waiting, whatever is under way when the
// lease is renewed would be tried in vain first.
const longestMove = 100 * time.Millisecond

// sighting is a term, the etcd key of its lease and the revision at which that showed it.
type sighting struct {
	token    fence.Token
	key      string
	revision int64
}

// leases says how terms are read from what is stored.
type leases struct {
	// decode returns the object that a key holds, decrypted.
	// The guard decodes what it has read itself. A Get through the store of Leases would be one more read, and might show another
	// revision than the one that is compared.
	decode func(ctx context.Context, kv *mvccpb.KeyValue) (runtime.Object, error)
	term   func(runtime.Object) fence.Token
	prefix string // the resource's
	root   string // the shard's, in etcd
}

func newTerms() *terms {
	return &terms{seen: lru.New(rememberedTerms), moving: map[string]chan struct{}{}}
}

// errNoLeases is a server's that does not serve them.
var errNoLeases = errors.New("this server stores no leases: it cannot check fencing tokens")

// errUnreadable says no more of a Lease than that: whoever asks may not be allowed to get it.
var errUnreadable = apierrors.NewInternalError(errors.New("the Lease of the fencing token could not be checked: the server's log says why"))

// find returns the etcd key of the token's lease.
func (t *terms) find(token fence.Token) (string, error) {
	if last, ok := t.last(token); ok {
		return last.key, nil
	}
	return t.key(token)
}

// revision is that at which the lease was last seen; 0 if it was not, or did not show the token's term then.
func (t *terms) revision(token fence.Token) int64 {
	if last, ok := t.last(token); ok && last.token == token {
		return last.revision
	}
	return 0
}

// last is what was seen last of the token's lease, whoever held it.
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

// read returns what a lease shows, as it was read from etcd.
func (t *terms) read(ctx context.Context, kv *mvccpb.KeyValue) (fence.Token, error) {
	lease, err := t.leases.Load().decode(ctx, kv)
	if err != nil {
		klog.FromContext(ctx).Error(err, "A Lease in etcd cannot be read, so no write with a token of it is let through: look at the key, and at --encryption-provider-config", "key", string(kv.Key))
		return fence.Token{}, errUnreadable
	}
	return t.learn(lease), nil
}

// learn takes in a Lease, as it was read or written, and returns what it shows.
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

// move says that this process writes the lease at a storage key, until the returned function is called.
func (t *terms) move(key string) (settled func()) {
	key = path.Join(t.leases.Load().root, key)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.moving[key] != nil {
		return func() {} // another write will tell
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

// settle waits, a bounded time, while this process writes the lease at an etcd key.
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

// forget drops all that was seen, and lets nothing be remembered again: revisions that come twice stand for two things.
func (t *terms) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetful = true
	t.seen.Clear()
}

// ref names the lease of a token, whoever holds it.
func ref(token fence.Token) fence.Token {
	token.UID, token.Holder, token.Epoch = "", "", 0
	return token
}
