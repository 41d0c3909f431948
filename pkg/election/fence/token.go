// Package fence holds the fencing token: the proof of the term in which a write was decided.
//
// A token names a lease, who held it, and the epoch in which it was held. No two terms of one lease ever have equal
// tokens, so whoever knows the lease can tell whether a token's term is still the current one. (Chubby calls this a
// sequencer; see Burrows, OSDI 2006.)
package fence

import (
	"fmt"

	"github.com/kcp-dev/logicalcluster/v3"
	"k8s.io/apimachinery/pkg/types"
)

// Token identifies one term of one lease. Tokens are comparable values; the zero Token means "no term", as without
// leader election.
type Token struct {
	// Cluster is the logical cluster the Lease lives in.
	Cluster logicalcluster.Name
	// Namespace and Name name the Lease within its logical cluster.
	Namespace, Name string
	// UID tells a Lease from one that was deleted and created again under the same name.
	UID types.UID
	// Holder is the holder identity, new for every term.
	Holder string
	// Epoch is the Lease's leaseTransitions during the term; at least 1.
	Epoch int64
}

// IsZero reports whether t stands for no term.
func (t Token) IsZero() bool { return t == Token{} }

// String is for logs. It is not a wire format.
func (t Token) String() string {
	if t.IsZero() {
		return "none"
	}
	return fmt.Sprintf("%s|%s/%s@%d held by %s (uid %s)", t.Cluster, t.Namespace, t.Name, t.Epoch, t.Holder, t.UID)
}
