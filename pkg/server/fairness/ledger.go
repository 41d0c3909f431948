package fairness

import (
	"sync"
	"time"
)

// slots is into how many parts a Ledger's window is divided. What was written counts until the window's last part is
// over.
const slots = 16

// Ledger knows how many bytes were written in the last while, and who has written too much of it: a tenant that has
// written more than others have left, as with places, or a person who has, in whatever tenants. So the sum of what
// persons write has a bound, and whoever writes little is never held up. Make it with NewLedger. All methods may be
// called at any time on any goroutine.
type Ledger struct {
	window time.Duration

	mu      sync.Mutex
	size    int64
	slot    int64 // of the latest time that was told
	all     account
	tenants map[string]*account // that have written something
	persons map[string]*account // the same
}

// little is a part of the size that everybody may write, whatever others have written.
const little = 1024

// epoch is what slots are counted from. A clock that is set makes no difference to what is measured from it.
var epoch = time.Now()

// account is what one has written.
type account struct {
	slot int64 // up to which of is right
	of   [slots]int64
	sum  int64
}

// NewLedger returns a Ledger of what was written within window. size is how many bytes may be: a tenant alone may write
// half of them.
func NewLedger(size int64, window time.Duration) *Ledger {
	return &Ledger{window: window, size: size, tenants: map[string]*account{}, persons: map[string]*account{}}
}

// Resize changes how many bytes may be written within the window.
func (l *Ledger) Resize(size int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.size = size
}

// Write counts bytes that were written in a tenant, if it is not empty, and by a person, if it is not. Only what
// persons have written counts for the sum.
func (l *Ledger) Write(now time.Time, tenant, person string, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance(now)
	if tenant != "" {
		get(l.tenants, tenant).add(l.slot, bytes)
	}
	if person != "" {
		l.all.add(l.slot, bytes)
		get(l.persons, person).add(l.slot, bytes)
	}
}

// Excess is what somebody has written too much of.
type Excess struct {
	// Written are the bytes that count, and Left what may still be written by all.
	Written, Left int64
	// ByPerson says that it is the person who has written them, and not the tenant.
	ByPerson bool
	// Window is within which time, and RetryAfter when some of it counts no more.
	Window, RetryAfter time.Duration
}

// Excess returns what a tenant, if it is not empty, or a person, if it is not, has written too much of. ok is false if
// neither has.
func (l *Ledger) Excess(now time.Time, tenant, person string) (e Excess, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance(now)
	e = Excess{Left: max(0, l.size-l.all.sum), Window: l.window, RetryAfter: l.window / slots}
	for _, by := range []struct {
		name string
		of   map[string]*account
	}{{tenant, l.tenants}, {person, l.persons}} {
		if a := by.of[by.name]; by.name != "" && a != nil {
			a.advance(l.slot)
			if e.Written = a.sum; e.Written > max(e.Left, l.size/little) {
				return e, true
			}
		}
		e.ByPerson = true
	}
	return Excess{}, false
}

// advance forgets what was written before the window, once for each part of it. The caller holds mu.
func (l *Ledger) advance(now time.Time) {
	slot := int64(now.Sub(epoch) / (l.window / slots))
	if slot <= l.slot {
		return
	}
	l.slot = slot
	l.all.advance(slot)
	for _, all := range []map[string]*account{l.tenants, l.persons} {
		for name, a := range all {
			if a.advance(slot); a.sum == 0 {
				delete(all, name)
			}
		}
	}
}

func get(all map[string]*account, name string) *account {
	a := all[name]
	if a == nil {
		a = &account{}
		all[name] = a
	}
	return a
}

func (a *account) add(slot, bytes int64) {
	a.advance(slot)
	a.of[slot%slots] += bytes
	a.sum += bytes
}

// advance forgets what is older than the window.
func (a *account) advance(slot int64) {
	for n := range min(slot-a.slot, slots) {
		at := (slot - n) % slots
		a.sum -= a.of[at]
		a.of[at] = 0
	}
	a.slot = max(a.slot, slot)
}
