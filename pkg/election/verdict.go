package election

import (
	"fmt"
	"time"
)

// verdict is what a standby makes of an observation.
type verdict struct {
	// action is what to do about it now.
	action action
	// reason says why, for the log.
	reason string
	// until is when time alone changes the verdict; zero if only the Lease can.
	until time.Time
}

type action int

const (
	// wait: another process holds the lease, or nothing is known yet.
	wait action = iota
	// win: the lease can be won.
	win
	// clear: the holder is an identity of our own that leads no term, so nobody works under it.
	clear
)

// judge decides what a standby does about what it sees. mine tells the identities of this process, dead whether the
// holder's process is known to have died.
func judge(seen observation, now time.Time, fallback time.Duration, mine, dead bool) verdict {
	expiry := seen.expiry(fallback)
	switch {
	case !seen.known():
		return verdict{action: wait}
	case seen.lease == nil:
		return verdict{action: win, reason: "there is no Lease"}
	case seen.holder() == "":
		return verdict{action: win, reason: "nobody holds the lease"}
	case mine:
		return verdict{action: clear, reason: "the holder is this process, in no term"}
	case dead:
		return verdict{action: win, reason: fmt.Sprintf("the process of holder %q is dead", seen.holder())}
	case !now.Before(expiry):
		return verdict{action: win, reason: fmt.Sprintf("the lease of %q expired", seen.holder())}
	default:
		return verdict{action: wait, until: expiry}
	}
}
