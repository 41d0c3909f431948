// Package fence has the fencing token: it proves in which term a write was decided.
//
// A token names a Lease, its holder, and the epoch in which that holder held it. No two terms of one Lease have equal
// tokens. So anyone who can read the Lease can tell whether a token's term is still the current one. (Chubby calls such
// a token a sequencer; see Burrows, OSDI 2006.)
//
// The clients of a term send its token with every request (Transport). The server refuses a write whose term is over,
// in the same transaction that would have made the write (IsFenced).
package fence

import (
	"errors"
	"fmt"

	"github.com/kcp-dev/logicalcluster/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Token identifies one term of one Lease. Tokens are comparable. The zero Token means that there is no term, as without
// leader election.
type Token struct {
	// Cluster is the name of the logical cluster in which the Lease lives. It is not a path. It is empty on servers
	// without logical clusters.
	Cluster logicalcluster.Name
	// Namespace and Name are those of the Lease in its logical cluster.
	Namespace, Name string
	// UID is the Lease's. It distinguishes the Lease from one that was deleted and created again under the same
	// name.
	UID types.UID
	// Holder is the holder identity. Regent's is new for every term.
	Holder string
	// Epoch is the Lease's leaseTransitions during the term. Terms of package election begin with 1. A process that
	// creates a Lease with client-go's own lock leads in epoch 0. That is valid, too: UID and Holder distinguish
	// its term from others.
	Epoch int64
}

// An Option changes what Acquired and Elected accept.
type Option func(*options)

type options struct{ unclustered bool }

// WithoutClusters accepts Leases that live in no logical cluster. Give it if the server is no Regent shard but has the
// guard of package etcdfence, without its Config.Clusters. With another server, such as kube-apiserver, tokens would
// prove nothing, which a Lease does not show.
func WithoutClusters() Option { return func(o *options) { o.unclustered = true } }

// Acquired returns the token of the term that identity has just begun. lease is the Lease, read from the server after
// it was acquired. Acquired fails if the Lease shows another holder, because the term is then over. It also fails if
// the Lease lives in no logical cluster, like the Leases of Kubernetes, unless WithoutClusters is given. It cannot know
// whether the server checks tokens: kcp has logical clusters, but does not by itself.
//
// Call it once for each term, before the work begins, and keep the token. A token that is made anew from the Lease for
// each write proves nothing.
func Acquired(lease *coordinationv1.Lease, identity string, opts ...Option) (Token, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	t := OfLease(lease)
	if t.Holder != identity {
		return Token{}, fmt.Errorf("the term is over: Lease %s/%s is held by %q in epoch %d, not by %q", t.Namespace, t.Name, t.Holder, t.Epoch, identity)
	}
	err := t.validate()
	if t.Cluster == "" && !o.unclustered {
		err = errors.New("it lives in no logical cluster")
	}
	if err != nil {
		return Token{}, fmt.Errorf("writes under Lease %s/%s cannot be fenced: read it through a Regent shard, which says in kcp.io/cluster where it lives, "+
			"or give fence.WithoutClusters if its server has package etcdfence: %w", t.Namespace, t.Name, err)
	}
	return t, nil
}

// OfLease returns the token that the Lease shows, whoever holds it. The annotation kcp.io/cluster says in which cluster
// the Lease lives. If the Lease has no holder, the result is not the token of a term. Use Acquired to begin a term.
func OfLease(lease *coordinationv1.Lease) Token {
	return Token{
		Cluster: logicalcluster.From(lease), Namespace: lease.Namespace, Name: lease.Name, UID: lease.UID,
		Holder: ptr.Deref(lease.Spec.HolderIdentity, ""), Epoch: int64(ptr.Deref(lease.Spec.LeaseTransitions, 0)),
	}
}

// IsZero reports whether t stands for no term.
func (t Token) IsZero() bool { return t == Token{} }

// String returns the token for logs. It is not a wire format.
func (t Token) String() string {
	if t.IsZero() {
		return "none"
	}
	return fmt.Sprintf("%s|%s/%s@%d held by %q (uid %s)", t.Cluster, t.Namespace, t.Name, t.Epoch, t.Holder, t.UID)
}
