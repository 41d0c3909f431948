// Package fence holds the fencing token: the proof of the term in which a write was decided.
//
// A token names a lease, who held it, and the epoch in which it was held. No two terms of one lease ever have equal
// tokens, so whoever knows the lease can tell whether a token's term is still the current one. (Chubby calls this a
// sequencer; see Burrows, OSDI 2006.)
//
// A term's clients send its token with every request (Transport). The server refuses a write whose term is over, in the
// transaction that would have made it (IsFenced).
package fence

import (
	"fmt"

	"github.com/kcp-dev/logicalcluster/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Token identifies one term of one lease. Tokens are comparable values; the zero Token means "no term", as without
// leader election.
type Token struct {
	// Cluster is the name of the logical cluster the Lease lives in (not a path to it).
	Cluster logicalcluster.Name
	// Namespace and Name name the Lease within its logical cluster.
	Namespace, Name string
	// UID tells a Lease from one that was deleted and created again under the same name.
	UID types.UID
	// Holder is the holder identity, new for every term.
	Holder string
	// Epoch is the Lease's leaseTransitions during the term. Regent's own terms begin with 1; whoever creates a Lease
	// with client-go's stock lock leads in epoch 0. That is valid, too: UID and Holder tell its term from others.
	Epoch int64
}

// Acquired returns the token of the term that identity has just begun, from the Lease as it was read from a shard after it
// was acquired. It fails if the Lease shows another holder, as the term is over then, and if it lives in no logical
// cluster, as those of Kubernetes do. It cannot know whether the server fences: kcp's has logical clusters too.
//
// Ask once for each term, before the work begins: a token that follows the Lease proves nothing.
func Acquired(lease *coordinationv1.Lease, identity string) (Token, error) {
	t := OfLease(lease)
	if t.Holder != identity {
		return Token{}, fmt.Errorf("the term is over: Lease %s/%s is held by %q in epoch %d, not by %q", t.Namespace, t.Name, t.Holder, t.Epoch, identity)
	}
	if err := t.validate(); err != nil {
		return Token{}, fmt.Errorf("writes under Lease %s/%s cannot be fenced: read it through a Regent shard, which says in kcp.io/cluster where it lives: %w", t.Namespace, t.Name, err)
	}
	return t, nil
}

// OfLease returns what a Lease shows, whoever holds it: the annotation kcp.io/cluster says where it lives. Without a holder
// it is no token of a term. To begin a term, use Acquired.
func OfLease(lease *coordinationv1.Lease) Token {
	return Token{
		Cluster: logicalcluster.From(lease), Namespace: lease.Namespace, Name: lease.Name, UID: lease.UID,
		Holder: ptr.Deref(lease.Spec.HolderIdentity, ""), Epoch: int64(ptr.Deref(lease.Spec.LeaseTransitions, 0)),
	}
}

// IsZero reports whether t stands for no term.
func (t Token) IsZero() bool { return t == Token{} }

// String is for logs. It is not a wire format.
func (t Token) String() string {
	if t.IsZero() {
		return "none"
	}
	return fmt.Sprintf("%s|%s/%s@%d held by %q (uid %s)", t.Cluster, t.Namespace, t.Name, t.Epoch, t.Holder, t.UID)
}
