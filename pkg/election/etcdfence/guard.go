package etcdfence

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election/fence"
)

// Guard holds writes to the fencing tokens in their contexts. All clients of one etcd share one: Client returns one
// that is guarded, and Install has it put into every store of an API server.
//
// A write with a token commits only if the token's Lease has not changed since the guard last saw it show the token's
// term: the transaction compares the revision of the Lease's key. A check before the write would not do, because the
// process may be stopped between the check and the write for longer than the lease lasts. No other record of terms is
// needed, so any Lease can be used, whoever wrote it.
//
// A renewal changes that revision too. Then the guard reads the Lease again. If it still shows the token's term, the
// write is tried again; otherwise it is fenced. A Lease that has expired and that nobody has taken still belongs to its
// holder.
//
// All methods may be called at any time on any goroutine.
type Guard struct {
	leases atomic.Pointer[Leases]
	terms  *terms

	// What Install has set. Without it all is zero.
	config    Config
	endpoints []string // sorted
	prefix    string   // of the keys that are this guard's, with a slash at its end

	mu      sync.Mutex
	clients []*client
	apart   []string // etcds without the Leases
}

// New returns a guard that knows no Leases yet: writes with a token fail until SetLeases is called, and others are made
// as ever.
func New() *Guard {
	registerMetrics()
	return &Guard{terms: newTerms()}
}

// SetLeases says where the Leases are stored.
func (g *Guard) SetLeases(l Leases) { g.leases.Store(&l) }

// Client returns a client that makes what next would make, and holds writes to the tokens in their contexts. kv is of
// the same etcd as next, and as the Leases: otherwise all writes with a token are refused. It makes the transactions.
func (g *Guard) Client(next kubernetes.Interface, kv interface {
	Txn(context.Context) clientv3.Txn
}) kubernetes.Interface {
	c := &client{Interface: next, kv: kv, guard: g}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.clients = append(slices.DeleteFunc(g.clients, (*client).closed), c)
	return c
}

// Check returns an error for which fence.IsFenced holds if the term of the token in ctx is over, and nil if ctx has no
// token. It reads the Lease, linearizably. It is for answers to a leader that no write stands behind, such as that to a
// dry run: each write is checked in its own transaction.
func (g *Guard) Check(ctx context.Context) error {
	token := fence.From(ctx)
	if token.IsZero() {
		return nil
	}
	tokensChecked.Inc()
	c, err := g.reader()
	if err != nil {
		return err
	}
	key, err := g.key(token)
	if err != nil {
		return err
	}
	_, err = c.reread(ctx, token, key)
	return err
}

// Forget makes the guard forget what it has seen of Leases, and remember nothing any more. It is for whoever notices
// that etcd has lost some of its history: one revision may then stand for two states. From then on each write with a
// token costs one read more.
func (g *Guard) Forget() { g.terms.forget() }

// reader returns a client that is not closed.
func (g *Guard) reader() (*client, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range slices.Backward(g.clients) {
		if !c.closed() {
			return c, nil
		}
	}
	return nil, errNotGuarded
}

// key returns the etcd key of the token's Lease.
func (g *Guard) key(token fence.Token) (string, error) {
	l := g.leases.Load()
	if l == nil {
		return "", errNoLeases
	}
	return l.Key(token)
}

// hold returns the revision of a Lease if it shows the token's term. Otherwise it returns the error that refuses the
// write.
func (g *Guard) hold(ctx context.Context, token fence.Token, lease *mvccpb.KeyValue) (int64, error) {
	var shown fence.Token
	if lease != nil {
		var err error
		if shown, err = g.leases.Load().Term(ctx, lease); err != nil {
			klog.FromContext(ctx).Error(err, "A Lease in etcd cannot be read, so no write with a token of it is let through: look at the key, and at the encryption configuration", "key", string(lease.Key))
			return 0, errUnreadable
		}
		shown = g.terms.learn(string(lease.Key), shown, lease.ModRevision)
	}
	if shown != termOf(token) {
		return 0, refuse(ctx, token, shown)
	}
	return lease.ModRevision, nil
}

// learn takes in what was written to a key, if it is a Lease.
func (g *Guard) learn(ctx context.Context, key string, value []byte, revision int64) {
	l := g.leases.Load()
	if l == nil || !l.has(key) {
		return
	}
	// If it cannot be read this write is not the one to be told.
	if shown, err := l.Term(ctx, &mvccpb.KeyValue{Key: []byte(key), Value: value, ModRevision: revision}); err == nil {
		g.terms.learn(key, shown, revision)
	}
}

var errNotGuarded = fmt.Errorf("no store of this server is guarded: call etcdfence.Install before the stores are made")
