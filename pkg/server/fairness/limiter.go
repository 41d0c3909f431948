// Package fairness shares a replica's capacity among those who ask it for work. One tenant's flood makes that tenant
// wait, and nobody else.
//
// A request that is handled takes places, the more the larger its answer is expected to be. Each tenant, which is
// mostly a logical cluster, may take places as long as it has no more than are free. So a tenant alone gets half of all
// places, two get a third each, and who comes next need not wait until requests of others end. Requests beyond that
// wait, and requests beyond those that may wait are refused. When places get free, the request goes on whose tenant has
// the fewest, and within a tenant the one whose user has the fewest. A person who is a user of many tenants has no more
// than one tenant may have.
//
// A request whose client reads its answer slowly has no places while it waits for it (seat.go): it takes no CPU then.
//
// Upstream's filter is used, and its queues are not: they have no level above the users of a tenant, keep nothing free
// for the next one, and take a list for as large as what all clusters have. This rule is that of switches whose ports
// share a memory (Choudhury and Hahne, dynamic queue length thresholds): it needs no settings.
package fairness

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// The reasons for which a request is refused.
var (
	// ErrFull says that as many requests of the tenant, or of its user, wait as may.
	ErrFull = errors.New("too many requests wait already")
	// ErrWaited says that the request's context ended while it waited.
	ErrWaited = errors.New("the request has waited too long")
)

// Flow says for whom a request counts.
type Flow struct {
	// Tenant is who shares with all other tenants. User shares with the other users of the tenant.
	Tenant, User string
	// Person is the user in all tenants together. Nobody is, if it is empty.
	Person string
	// Privileged tenants need no free place: they get in while all places are taken. They may take half of all,
	// too.
	Privileged bool
	// Background tenants have clients that no user waits for: a tenant is alone beside them (see Limiter.Alone).
	Background bool
}

// Limiter shares places. Make it with New. All methods may be called at any time on any goroutine.
type Limiter struct {
	mu sync.Mutex
	// handled are the places for requests that are handled, waiting those of requests that wait.
	handled, waiting room
	// reading are the places of answers that wait for slow readers.
	reading room
	tenants map[string]*tenant // those that have or want places
	persons map[string]*party  // the same
	turns   uint64             // how many requests have got their places
	// latest is the tenant, of those that are not in the background, that has got places last, and since when no
	// other one has.
	latest string
	since  time.Time
}

// tenant is a Flow.Tenant that has or wants places.
type tenant struct {
	party
	users map[string]*member
}

// member is a user of a tenant that has or wants places.
type member struct {
	party
	person *party
	queue  list.List // of *ticket, the oldest first
}

// party is what a tenant or a user has.
type party struct {
	handled, waiting, reading int

	lastTurn uint64 // when it got places last, in turns
}

// ticket is a request that waits.
type ticket struct {
	flow   Flow
	places int
	gotIn  chan struct{} // closed when the request has its places
}

// New returns a limiter with so many places for requests that are handled, and for requests that wait. Both must be
// greater than 0.
func New(places, waiting int) *Limiter {
	registerMetrics()
	return &Limiter{
		handled: room{size: places}, waiting: room{size: waiting}, reading: room{size: readingPlaces},
		tenants: map[string]*tenant{}, persons: map[string]*party{},
	}
}

// Enter returns when the request may be handled. leave must be called once when it has been. places are what it takes;
// it takes at least one and at most a quarter of all. If err is not nil, the request is refused: the error wraps
// ErrFull, or ErrWaited if ctx ended.
func (l *Limiter) Enter(ctx context.Context, flow Flow, places int) (leave func(), err error) {
	t := &ticket{flow: flow, places: l.bounded(places)}
	at, err := l.arrive(t)
	if err != nil {
		return nil, err
	}
	if at != nil {
		select {
		case <-t.gotIn:
		case <-ctx.Done():
			if l.giveUp(t, at) {
				return nil, ErrWaited
			}
		}
	}
	return func() { l.leave(t) }, nil
}

// Alone reports whether a tenant has got places, and no other one has for so long. Tenants in the background do not
// count.
func (l *Limiter) Alone(tenant string, quiet time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latest == tenant && time.Since(l.since) >= quiet
}

// bounded returns how many places a request takes that wants so many.
func (l *Limiter) bounded(places int) int { return min(max(1, places), max(1, l.handled.size/4)) }

// arrive gives the request its places and returns nil, or puts it into a queue and returns where.
func (l *Limiter) arrive(t *ticket) (*list.Element, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of, user := l.get(t.flow)
	if of.waiting == 0 && l.fits(t, of, user) {
		l.take(t, of, user)
		return nil, nil
	}
	if !l.waiting.admits(of.waiting, 1) || !l.waiting.admits(user.person.waiting, 1) || !within(userShare(l.waiting.size), user.waiting, 1) {
		l.drop(t.flow, of, user)
		return nil, ErrFull
	}
	t.gotIn = make(chan struct{})
	l.wait(of, user, 1)
	at := user.queue.PushBack(t)
	l.letIn() // perhaps this one: those that wait may have more than it
	return at, nil
}

// giveUp takes a request out of its queue. It returns false if the request has got its places meanwhile.
func (l *Limiter) giveUp(t *ticket, at *list.Element) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-t.gotIn:
		return false
	default:
	}
	of, user := l.get(t.flow)
	user.queue.Remove(at)
	l.wait(of, user, -1)
	l.drop(t.flow, of, user)
	l.letIn() // a smaller one may have been behind it
	return true
}

func (l *Limiter) leave(t *ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of, user := l.get(t.flow)
	l.give(of, user, -t.places)
	l.drop(t.flow, of, user)
	l.letIn()
}

// letIn gives places to requests that wait, until the next one does not fit. The caller holds mu.
func (l *Limiter) letIn() {
	for l.waiting.taken > 0 {
		of, user, t := l.next()
		if t == nil {
			return
		}
		user.queue.Remove(user.queue.Front())
		l.wait(of, user, -1)
		l.take(t, of, user)
		close(t.gotIn)
	}
}

// next returns the request that goes on next, or nil. The caller holds mu.
func (l *Limiter) next() (*tenant, *member, *ticket) {
	var of *tenant
	var user *member
	var first *ticket
	for _, candidate := range l.tenants {
		if candidate.waiting == 0 || of != nil && !candidate.before(&of.party) {
			continue
		}
		// If this one does not fit, no other of its tenant goes on instead: else a large request would wait for
		// ever.
		if u, t := l.nextOf(candidate); t != nil && l.fits(t, candidate, u) {
			of, user, first = candidate, u, t
		}
	}
	return of, user, first
}

// nextOf returns the request of a tenant that goes on next, if it fits. A user that has its part already, elsewhere, is
// passed over: the tenant's other users do not wait for it. The caller holds mu.
func (l *Limiter) nextOf(of *tenant) (user *member, first *ticket) {
	for _, u := range of.users {
		if u.waiting == 0 || user != nil && !u.before(&user.party) {
			continue
		}
		if t, ok := u.queue.Front().Value.(*ticket); ok && (t.flow.Privileged || l.handled.admits(u.person.handled, t.places)) {
			user, first = u, t
		}
	}
	return user, first
}

// before reports whether p is served before other: because it has fewer places, or because its last turn was earlier.
func (p *party) before(other *party) bool {
	return cmp.Or(cmp.Compare(p.handled, other.handled), cmp.Compare(p.lastTurn, other.lastTurn)) < 0
}

// fits reports whether a request may take its places. The caller holds mu.
func (l *Limiter) fits(t *ticket, of *tenant, user *member) bool {
	if t.flow.Privileged {
		return within(l.handled.size/2, of.handled, t.places)
	}
	return within(userShare(l.handled.size), user.handled, t.places) && l.handled.admits(of.handled, t.places) && l.handled.admits(user.person.handled, t.places)
}

// take gives a request its places. The caller holds mu.
func (l *Limiter) take(t *ticket, of *tenant, user *member) {
	l.turns++
	of.lastTurn, user.lastTurn = l.turns, l.turns
	if t.flow.Tenant != l.latest && !t.flow.Background {
		l.latest, l.since = t.flow.Tenant, time.Now()
	}
	l.give(of, user, t.places)
}

// give counts n more places of requests that are handled. The caller holds mu.
func (l *Limiter) give(of *tenant, user *member, n int) {
	of.handled += n
	user.handled += n
	user.person.handled += n
	l.handled.taken += n
	placesTaken.Add(float64(n))
}

// wait counts n more requests that wait. The caller holds mu.
func (l *Limiter) wait(of *tenant, user *member, n int) {
	if of.waiting == 0 {
		tenantsWaiting.Inc()
	}
	of.waiting += n
	user.waiting += n
	user.person.waiting += n
	l.waiting.taken += n
	if of.waiting == 0 {
		tenantsWaiting.Dec()
	}
	requestsWaiting.Add(float64(n))
}

// get returns who asks. The caller holds mu, and calls drop if it gives them nothing.
func (l *Limiter) get(flow Flow) (*tenant, *member) {
	of := l.tenants[flow.Tenant]
	if of == nil {
		of = &tenant{users: map[string]*member{}}
		l.tenants[flow.Tenant] = of
	}
	user := of.users[flow.User]
	if user == nil {
		user = &member{person: l.person(flow)}
		of.users[flow.User] = user
	}
	return of, user
}

// person returns who a user is in all tenants. The caller holds mu.
func (l *Limiter) person(flow Flow) *party {
	if flow.Person == "" {
		return &party{}
	}
	p := l.persons[flow.Person]
	if p == nil {
		p = &party{}
		l.persons[flow.Person] = p
	}
	return p
}

// isIdle reports whether a tenant, a user or a person neither has nor wants a place.
func (p *party) isIdle() bool { return p.handled == 0 && p.waiting == 0 && p.reading == 0 }

// drop forgets who neither has nor wants a place. The caller holds mu.
func (l *Limiter) drop(flow Flow, of *tenant, user *member) {
	if user.isIdle() {
		delete(of.users, flow.User)
		if user.person.isIdle() {
			delete(l.persons, flow.Person)
		}
	}
	if len(of.users) == 0 {
		delete(l.tenants, flow.Tenant)
	}
}
