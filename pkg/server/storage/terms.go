package storage

import (
	"context"
	"errors"
	"path"
	"sync"
	"sync/atomic"

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

// leases are the stored objects that terms are read from.
type leases struct {
	store   storage.Interface // etcd3's own: what is encrypted is decrypted, and nothing comes from a cache
	newFunc func() runtime.Object
	term    func(runtime.Object) fence.Token
	prefix  string // the resource's
	root    string // the shard's, in etcd
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
	key, err := l.key(token)
	if err != nil {
		return "", err
	}
	return path.Join(l.root, key), nil
}

// key is the storage key of the token's lease.
func (l *leases) key(token fence.Token) (string, error) {
	return clusters.StorageKey(l.prefix, l.prefix+"/"+token.Namespace+"/"+token.Name, token.Cluster)
}

// read returns what the token's lease shows, and at which revision. Without a Lease it is the zero Token.
func (t *terms) read(ctx context.Context, token fence.Token) (fence.Token, int64, error) {
	l := t.leases.Load()
	if l == nil {
		return fence.Token{}, 0, errNoLeases
	}
	key, err := l.key(token)
	if err != nil {
		return fence.Token{}, 0, err
	}
	lease := l.newFunc()
	if err := l.store.Get(ctx, key, storage.GetOptions{}, lease); err != nil {
		if storage.IsNotFound(err) {
			return fence.Token{}, 0, nil
		}
		return fence.Token{}, 0, err
	}
	shown, revision := t.learn(lease)
	return shown, revision, nil
}

// learn takes in a Lease, as it was read or written, and returns what it shows.
func (t *terms) learn(lease runtime.Object) (fence.Token, int64) {
	shown := t.leases.Load().term(lease)
	version, err := storage.APIObjectVersioner{}.ObjectResourceVersion(lease)
	if err != nil {
		return shown, 0
	}
	revision := int64(version)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.forgetful {
		return shown, revision
	}
	if last, ok := t.seen.Get(ref(shown)); !ok || last.(sighting).revision < revision {
		t.seen.Add(ref(shown), sighting{shown, revision})
	}
	return shown, revision
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
