package storage

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/utils/lru"

	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/clusters"
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
}

// sighting is a term and the revision at which its lease showed it.
type sighting struct {
	token    fence.Token
	revision int64
}

// leases says how terms are read from what is stored.
type leases struct {
	// decode returns the object that a key holds, decrypted.
	decode func(ctx context.Context, kv *mvccpb.KeyValue) (runtime.Object, error)
	term   func(runtime.Object) fence.Token
	prefix string // the resource's
	root   string // the shard's, in etcd
}

func newTerms() *terms { return &terms{seen: lru.New(rememberedTerms)} }

// errNoLeases is a server's that does not serve them.
var errNoLeases = errors.New("this server stores no leases: it cannot check fencing tokens")

// find returns the etcd key of the token's lease.
func (t *terms) find(token fence.Token) (string, error) {
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
		return fence.Token{}, fmt.Errorf("cannot read the Lease of a fencing token at %s: %w", kv.Key, err)
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
	if last, ok := t.seen.Get(ref(shown)); !ok || last.(sighting).revision < revision {
		t.seen.Add(ref(shown), sighting{shown, revision})
	}
	return shown
}

// revision is that at which the lease was last seen, if the term it showed was the token's.
func (t *terms) revision(token fence.Token) (int64, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, ok := t.seen.Get(ref(token))
	if !ok || last.(sighting).token != token {
		return 0, false
	}
	return last.(sighting).revision, true
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
