package election

import (
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
)

// remembered bounds how many identities are kept. One can turn up on the Lease only while a write of it is under way,
// and such a write fails once any other has followed: the last few would do.
const remembered = 64

// identities makes the holder identities of this process, a new one for every attempt to acquire, and knows them again.
type identities struct {
	hostname string
	// separator comes before the uuid.
	separator string

	mu     sync.Mutex
	recent []string // oldest first
}

// next returns an identity that was never used before.
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

// newIdentities makes identities of this process. objects: they are names of objects.
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

// longestHostname is what names of objects have of a hostname, in bytes.
const longestHostname = 63
