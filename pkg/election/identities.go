package election

import (
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
)

// remembered is how many identities are kept. An identity can appear on the Lease only while its write is under way,
// and that write fails after any other write. So the last few would suffice.
const remembered = 64

// identities makes the holder identities of this process, one for each attempt to acquire the lease, and recognises
// them later.
type identities struct {
	replica string
	// separator stands between the replica's name and the uuid.
	separator string

	mu     sync.Mutex
	recent []string // oldest first
}

// next returns a new identity.
func (i *identities) next() string {
	identity := i.replica + i.separator + uuid.NewString()
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.recent) == remembered {
		i.recent = slices.Delete(i.recent, 0, 1)
	}
	i.recent = append(i.recent, identity)
	return identity
}

// ours reports whether identity is one of this process.
func (i *identities) ours(identity string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Contains(i.recent, identity)
}

// newIdentities returns the identities of a process of that replica. With objects, each identity is a valid name of an
// object, and begins with the replica's name as far as that can be.
func newIdentities(replica string, objects bool) *identities {
	if !objects {
		return &identities{replica: replica, separator: "_"}
	}
	if len(replica) <= longestReplica && len(validation.IsDNS1123Subdomain(replica)) == 0 {
		return &identities{replica: replica, separator: "-"}
	}
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(replica))
	name = strings.Trim(name[:min(len(name), longestReplica)], "-")
	if name == "" {
		name = "replica"
	}
	return &identities{replica: name, separator: "-"}
}

// longestReplica is how much of a replica's name goes into the name of an object, in bytes.
const longestReplica = 63
