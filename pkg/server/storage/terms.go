package storage

import (
	"context"
	"errors"
	"path"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"
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

// sighting is a term, the etcd key of its lease and the revision at which that showed it.
type sighting struct {
	token    fence.Token
	key      string
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

// errUnreadable says no more of a Lease than that: whoever asks may not be allowed to get it.
var errUnreadable = apierrors.NewInternalError(errors.New("the Lease of the fencing token could not be checked: the server's log says why"))

// last returns the etcd key of the token's lease, and the revision at which it was last seen; 0 if it was not seen, or did
// not show the token's term then.
func (t *terms) last(token fence.Token) (key string, revision int64, _ error) {
	t.mu.Lock()
	known, ok := t.seen.Get(ref(token))
	t.mu.Unlock()
	if !ok {
		key, err := t.key(token)
		return key, 0, err
	}
	last := known.(sighting)
	if last.token != token {
		return last.key, 0, nil
	}
	return last.key, last.revision, nil
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
