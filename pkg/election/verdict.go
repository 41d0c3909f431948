package election

import (
	"fmt"
	"time"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// verdict is what a standby makes of an observation.
type verdict struct {
	// action is what to do about it now.
	action action
	// trigger and reason say why, for programs and for people.
	trigger Trigger
	reason  string
	// symptom is when that began to show.
	symptom time.Time
	// until is when time alone changes the verdict; zero if only news can.
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
	// depose: the holder can be succeeded, by whom another has to say.
	depose
	// ask: the holder is to be asked to make way.
	ask
)

// knowledge is what a standby knows of the holder beyond the Lease.
type knowledge struct {
	// candidate is the identity under which this process stands, in mode coordinated; empty otherwise.
	candidate string
	// mine: the holder is an identity of this process.
	mine bool
	// dead: its process holds no lock on its file any more, on this very machine. That is proof.
	dead bool
	// near: its process runs, or ran, on this very machine.
	near bool
	// news is what the Detector knows of its process, fenced that its writes are refused once another leads: only then may
	// it be succeeded without proof.
	news   News
	fenced bool
	// suspect: silence is enough. Neither that nor a death without proof is, if there were too many suspicions of late.
	suspect    bool
	suspicions int
	// orphaned: the owner object of a lease that is held for life is gone.
	orphaned bool
}

// seemsGone reports whether there are signs, and no proof, for which the holder may be succeeded.
func (k knowledge) seemsGone() bool {
	return k.fenced && (k.news.Sign == Dead || k.suspect && k.news.Sign == Silent)
}

// judge decides what a standby does about what it sees and knows. fallback is the duration of a Lease that says none.
func judge(seen lease.Observation, now time.Time, fallback time.Duration, k knowledge) verdict {
	expiry := seen.Expiry(fallback)
	doubtful := now.Before(expiry) && now.Before(seen.TermSince.Add(suspicionPause(k.suspicions)))
	holder := seen.Holder()
	switch {
	case !seen.Known():
		return verdict{action: wait}
	case seen.Lease == nil && seen.Highest == 0:
		return verdict{action: win, trigger: TriggerNone, symptom: seen.Since, reason: "there is no Lease"}
	case seen.Lease == nil:
		return verdict{action: win, trigger: TriggerDeletion, symptom: seen.Since, reason: "the Lease was deleted"}
	case holder == "":
		return verdict{action: win, trigger: TriggerRelease, symptom: seen.Since, reason: "nobody holds the lease"}
	case holder == k.candidate && seen.Preferred() == "": // with one client-go does not renew, nor begin
		return verdict{action: win, trigger: TriggerElected, symptom: seen.Since, reason: "this process was elected"}
	case k.mine:
		return verdict{action: clear, reason: "the holder is this process, in no term"}
	case k.dead:
		if k.news.Sign == Dead {
			now = k.news.Since
		}
		return verdict{action: win, trigger: TriggerDeath, symptom: now, reason: fmt.Sprintf("the process of holder %q is dead", holder)}
	case k.news.Said == Statement{Holder: holder, Condition: Over}:
		return verdict{action: win, trigger: TriggerStepAside, symptom: seen.Since, reason: fmt.Sprintf("holder %q says that its term is over", holder)}
	case seen.HeldForLife() && k.orphaned:
		return verdict{action: win, trigger: TriggerOwnerDeleted, symptom: now, reason: fmt.Sprintf("the owner object of holder %q was deleted", holder)}
	case seen.HeldForLife():
		return verdict{action: wait}
	case doubtful && k.seemsGone():
		return verdict{action: wait, until: earlier(expiry, seen.TermSince.Add(suspicionPause(k.suspicions)))}
	case k.fenced && k.news.Sign == Dead:
		return verdict{action: win, trigger: TriggerDeath, symptom: k.news.Since, reason: fmt.Sprintf("the process of holder %q is gone: its address refuses connections", holder)}
	case !now.Before(expiry):
		return verdict{action: win, trigger: TriggerExpiry, symptom: seen.Since, reason: fmt.Sprintf("the lease of %q expired", holder)}
	case k.seemsGone():
		return verdict{action: win, trigger: TriggerSuspicion, symptom: k.news.Since, reason: fmt.Sprintf("holder %q has been silent since %v", holder, now.Sub(k.news.Since).Round(time.Millisecond))}
	default:
		return verdict{action: wait, until: expiry}
	}
}

// winnable is since when the lease can be won, and why. The zero value: it cannot.
type winnable struct {
	since time.Time
	// first is the verdict that first said so: of the same trigger, or in mode coordinated of any, since there an election
	// comes between what ended a term and the next. decided is when it did.
	first   verdict
	decided time.Time
	// after is the highest epoch there was then.
	after int64
}

// next is what it is in view of another verdict. elects: the mode is coordinated.
func (w winnable) next(v verdict, seen lease.Observation, elects bool, now time.Time) winnable {
	sameTerm := seen.Highest == w.after || v.trigger == TriggerElected && seen.Before == w.after
	switch {
	case v.action != win:
		return winnable{}
	case w.since.IsZero() || !sameTerm:
		return winnable{since: now, first: v, decided: now, after: seen.Highest}
	case !elects && v.trigger != w.first.trigger:
		w.first, w.decided = v, now
	}
	return w
}

// takeover tells of a term that begins with it.
func (w winnable) takeover() Takeover {
	return Takeover{Trigger: w.first.trigger, Symptom: w.first.symptom, Decided: w.decided}
}
