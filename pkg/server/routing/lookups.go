package routing

import (
	"slices"
	"sync"

	"golang.org/x/time/rate"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/lru"
)

// A cluster that this replica does not know may have been made through another one just now. Therefore storage is read
// even for users of whom nothing else says that they may enter it.
const (
	// lookupsPerSecond is how often storage is read for one user, and lookupsAtOnce how often at once after a
	// pause.
	lookupsPerSecond = 50
	lookupsAtOnce    = 100
	// lookupUsers is how many users are told apart. A user who was not seen for the longest time begins anew.
	lookupUsers = 4096
)

// lookups limits how often users make the server look in storage for clusters that may not exist.
type lookups struct {
	mu    sync.Mutex
	users *lru.Cache // rate limiters by the names under which limits count users
}

func newLookups() *lookups { return &lookups{users: lru.New(lookupUsers)} }

// mayLookUp reports whether storage may be read for a user. Strangers never make the server read.
func mayLookUp(who user.Info) bool {
	return who != nil && slices.Contains(who.GetGroups(), user.AllAuthenticated)
}

// of returns what allows reads for a user, by the name under which limits count it.
func (l *lookups) of(name string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if found, ok := l.users.Get(name); ok {
		return found.(*rate.Limiter)
	}
	fresh := rate.NewLimiter(lookupsPerSecond, lookupsAtOnce)
	l.users.Add(name, fresh)
	return fresh
}
