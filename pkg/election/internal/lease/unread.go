package lease

import (
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
)

const (
	// toldAfter is for how long a Lease cannot be read or watched before people are told. A server that restarts is
	// back earlier.
	toldAfter = 2 * time.Second
	// toldAgain is the longest time between two such messages.
	toldAgain = time.Minute
)

// unread tells people that the Lease cannot be read or watched: at once if an account or a permission is missing,
// otherwise when that has lasted for toldAfter. It tells them again whenever that time has doubled, and at least once
// in toldAgain. A watch that ends is no fault, if the next one begins.
//
// Only the goroutine of Watcher.Run changes it. Any goroutine may read the fault.
type unread struct {
	life string // the name of the Lease, if it stands for a process's life; empty: it is that of the election
	// message and again are what people are told if it is no Lease that cannot be read; empty: it is.
	message, again string

	since time.Time // when the first of the attempts began that have failed in a row; zero: the last one succeeded
	next  time.Time // when to tell people again; zero: they have not been told

	mu    sync.Mutex
	fault string // what people were told last; empty: nothing, or that it is over
}

// failed records an attempt that began at began. read: the Lease was read, and only the watch could not begin. known:
// the Lease has been read before.
func (u *unread) failed(logger klog.Logger, began time.Time, err error, read, known bool) {
	now := time.Now()
	if u.since.IsZero() {
		u.since = began
	}
	lasts := now.Sub(u.since)
	switch {
	case !u.next.IsZero() && now.Before(u.next):
		return
	case u.next.IsZero() && lasts < toldAfter && !isRefused(err):
		return
	}
	u.next = now.Add(min(max(lasts, toldAfter), toldAgain))
	message := "Cannot read the Lease: this replica cannot lead, nor follow, until it can (it takes the verbs list and watch)"
	switch {
	case u.message != "":
		message = u.message
	case u.life != "":
		message = "Cannot read the Lease that stands for a process's life: until it can, this replica holds no lease for life, nor sees that such a holder is gone (it takes the verbs list and watch)"
		logger = logger.WithValues("object", u.life)
	case read:
		message = "Cannot watch the Lease: this replica reads it now and then, and notices late what happens to it (it takes the verbs list and watch)"
	case known:
		message = "Cannot read the Lease any more: until it can, this replica does not see who leads (it takes the verbs list and watch)"
	}
	logger.Error(err, message, "since", lasts.Round(time.Millisecond))
	u.set(err.Error())
}

// isRefused reports whether another attempt will probably have the same answer. A list by name does not say that there
// is no such Lease: if something was not found, it is the resource.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err)
}

// succeeded records that a watch has begun.
func (u *unread) succeeded(logger klog.Logger) {
	if !u.next.IsZero() {
		message := "The Lease can be read and watched again"
		switch {
		case u.message != "":
			message = u.again
		case u.life != "":
			logger = logger.WithValues("object", u.life)
		}
		logger.Info(message, "after", time.Since(u.since).Round(time.Millisecond))
		u.set("")
	}
	u.since, u.next = time.Time{}, time.Time{}
}

func (u *unread) set(fault string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.fault = fault
}

func (u *unread) get() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.fault
}

// Standing tells people of an object of this process that it cannot keep, as unread does of the Lease. One goroutine
// may call Failed, Succeeded and Over, and any goroutine Fault.
type Standing struct {
	// Cannot is the message, and Again the one when it can be kept. Key is the key of its name in the log.
	Cannot, Again, Key string

	unread
}

// Failed records an attempt to keep the object of that name that began at began.
func (s *Standing) Failed(logger klog.Logger, name string, began time.Time, err error) {
	s.message, s.again = s.Cannot, s.Again
	s.failed(logger.WithValues(s.Key, name), began, err, false, false)
}

// Succeeded records that the object is kept.
func (s *Standing) Succeeded(logger klog.Logger) { s.succeeded(logger) }

// Over forgets what was told: no object is wanted.
func (s *Standing) Over() {
	s.since, s.next = time.Time{}, time.Time{}
	s.set("")
}

// Fault says why the object cannot be kept, as people were told in the log; empty if it can.
func (s *Standing) Fault() string { return s.get() }
