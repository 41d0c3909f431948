package election

import (
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
)

// remembered is how many identities are kept. An identity can appear on the Lease only while its write is under way,
// and that write fails after any other write. So the last few would suffice.
const remembered = 64

// identities makes the holder identities of this process, one for each attempt to acquire the lease, and recognises
// them later.
type identities struct {
	hostname string
	// separator stands between the host name and the uuid.
	separator string

	mu     sync.Mutex
	recent []string // oldest first
}

// next returns a new identity.
func (i *identities) next() string {
	identity := i.hostname + i.separator + uuid.NewString()
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

// newIdentities returns the identities of a process on that host. With objects, each identity is a valid name of an
// object.
func newIdentities(hostname string, objects bool) *identities {
	if !objects {
		return &identities{hostname: hostname, separator: "_"}
	}
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(hostname))
	name = strings.Trim(name[:min(len(name), longestHostname)], "-")
	if name == "" {
		name = "replica"
	}
	return &identities{hostname: name, separator: "-"}
}

// longestHostname is how much of a host name goes into the name of an object, in bytes.
const longestHostname = 63
