package election

import (
	"fmt"
	"time"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// verdict is what a standby concludes from an observation.
type verdict struct {
	// action is what to do now.
	action action
	// trigger and reason say why, for programs and for people.
	trigger Trigger
	reason  string
	// symptom is when the reason was first noticed: see Takeover.Symptom.
	symptom time.Time
	// unproved: the holder is succeeded although nothing proves its death, and nothing refuses its writes
	// (Config.SucceedUnfenced).
	unproved bool
	// until is when the passing of time changes the verdict; zero: only a change can.
	until time.Time
}

// action is what a standby does.
type action int

const (
	// wait: another process holds the lease, or the Lease has not been seen yet.
	wait action = iota
	// win: the lease can be won.
	win
	// clear: the holder is an identity of this process that leads no term, and has to be taken off the Lease.
	clear
	// depose: the holder can be succeeded and has to be taken off the Lease. An electing controller then names the
	// next (mode coordinated).
	depose
	// ask: the holder has to be asked to step down.
	ask
)

// knowledge is what a standby knows of the holder beyond the Lease.
type knowledge struct {
	// candidate is the identity of this process's LeaseCandidate, in mode coordinated; empty otherwise.
	candidate string
	// mine: the holder is an identity of this process.
	mine bool
	// dead: the holder's process on this machine no longer locks its file, which proves that it is dead.
	dead bool
	// near: the holder's process runs, or ran, on this machine.
	near bool
	// news is what the Detector knows of the holder's process.
	news News
	// fenced: both this process and the holder are fenced (Config.Fenced). If not, only proof, or the holder's own
	// word, ends the holder's term early.
	fenced bool
	// risked: this process and the holder allow to succeed the holder without a fence if its address refuses
	// connections (Config.SucceedUnfenced).
	risked bool
	// suspect: the holder may be succeeded because it is silent (Config.Detection is DetectSuspect).
	suspect bool
	// suspicions is the count on the Lease. The higher it is, the longer a new term is safe from signs that are no
	// proof (suspicionPause).
	suspicions int
	// orphaned: the object that stands for the holder's life was deleted, or its presence is over.
	orphaned bool
}

// seemsGone reports whether there are signs, but no proof, that allow to succeed the holder.
func (k knowledge) seemsGone() bool {
	return k.seemsDead() || k.fenced && k.suspect && k.news.Sign == Silent
}

// seemsDead reports whether the holder's address refuses connections, and that is enough to succeed it.
func (k knowledge) seemsDead() bool {
	return (k.fenced || k.risked) && k.news.Sign == Dead
}

// judge decides what a standby does about what it sees and knows. fallback is the duration of a Lease that does not say
// one.
func judge(seen lease.Observation, now time.Time, fallback time.Duration, k knowledge) verdict {
	expiry := seen.Expiry(fallback)
	doubtful := now.Before(expiry) && now.Before(seen.TermSince.Add(suspicionPause(k.suspicions)))
	holder := seen.Holder()
	switch {
	case !seen.IsKnown():
		return verdict{action: wait}
	case seen.Lease == nil && seen.Highest == 0:
		return verdict{action: win, trigger: TriggerNone, symptom: seen.Since, reason: "there is no Lease"}
	case seen.Lease == nil:
		return verdict{action: win, trigger: TriggerDeletion, symptom: seen.Since, reason: "the Lease was deleted"}
	case holder == "":
		return verdict{action: win, trigger: TriggerRelease, symptom: seen.Since, reason: "nobody holds the lease"}
	case holder == k.candidate && seen.Preferred() == "": // with a PreferredHolder client-go would not renew
		return verdict{action: win, trigger: TriggerElected, symptom: seen.Since, reason: "this process was elected"}
	case k.mine:
		return verdict{action: clear, reason: "the holder is this process, which leads no term"}
	case k.dead:
		if k.news.Sign == Dead {
			now = k.news.Since
		}
		return verdict{action: win, trigger: TriggerDeath, symptom: now, reason: fmt.Sprintf("the process of holder %q is dead", holder)}
	case k.news.Said == Statement{Holder: holder, Condition: Over}:
		return verdict{action: win, trigger: TriggerStepAside, symptom: seen.Since, reason: fmt.Sprintf("holder %q says that its term is over", holder)}
	case seen.IsByPresence() && k.orphaned:
		return verdict{action: win, trigger: TriggerOwnerDeleted, symptom: now, reason: fmt.Sprintf("the presence of holder %q is over", holder)}
	case k.orphaned:
		return verdict{action: win, trigger: TriggerOwnerDeleted, symptom: now, reason: fmt.Sprintf("the owner object of holder %q was deleted", holder)}
	case !seen.Expires():
		return verdict{action: wait}
	case doubtful && k.seemsGone():
		return verdict{action: wait, until: earlier(expiry, seen.TermSince.Add(suspicionPause(k.suspicions)))}
	case k.seemsDead():
		return verdict{action: win, trigger: TriggerDeath, symptom: k.news.Since, unproved: !k.fenced, reason: fmt.Sprintf("the process of holder %q is gone: its address refuses connections", holder)}
	case !now.Before(expiry):
		return verdict{action: win, trigger: TriggerExpiry, symptom: seen.Since, reason: fmt.Sprintf("the lease of %q expired", holder)}
	case k.seemsGone():
		return verdict{action: win, trigger: TriggerSuspicion, symptom: k.news.Since, reason: fmt.Sprintf("holder %q has been silent for %v", holder, now.Sub(k.news.Since).Round(time.Millisecond))}
	default:
		return verdict{action: wait, until: expiry}
	}
}

// winnable says since when the lease can be won, and why. The zero value means that it cannot.
type winnable struct {
	since time.Time
	// first is the verdict that made the lease winnable, and decided is when that was. A later verdict with another
	// trigger replaces it, but not in mode coordinated: there the election follows it as another trigger.
	first   verdict
	decided time.Time
	// after is the highest epoch that had been seen by then.
	after int64
}

// next returns what w becomes after verdict v. elects: the mode is coordinated.
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

// takeover describes a term that begins now.
func (w winnable) takeover() Takeover {
	return Takeover{Trigger: w.first.trigger, Symptom: w.first.symptom, Decided: w.decided}
}
