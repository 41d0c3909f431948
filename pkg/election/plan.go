package election

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// situation is everything, beside its Config, that a standby's decision depends on. It is a value; each look at the
// Lease makes a new one.
type situation struct {
	now  time.Time
	seen lease.Observation
	// holder is what is known of the holder beyond the Lease.
	holder knowledge
	// pace says when this process may campaign again. lastEpoch is the epoch of its latest term.
	pace      pace
	lastEpoch int64
	// unready: the mode says that no term can begin yet (mode.unready). In mode for-life the term's owner object
	// does not exist.
	unready bool
	// assigned is the Instance of the process that should hold the lease (Config.Assigned).
	assigned string
	memory
}

// memory is what a standby remembers from one situation to the next.
type memory struct {
	winnable winnable
	told     announcements
	wish     wishTimes
}

// announcements are what people have already been told of why this process does not lead, so that they are told only
// once.
type announcements struct {
	mode      ModeName  // the other mode that leaders use
	holder    string    // the holder that has not been heard for too long
	exhausted types.UID // the Lease on which no further term can begin
	waiting   waiting   // the sign of a death on which this process may not act
}

// waiting is a sign that the holder's process is dead or hangs, on which a standby may not act yet.
type waiting struct {
	holder string
	sign   Sign
	since  time.Time // see News
	why    whyWait
}

// whyWait says why a standby may not act on a sign.
type whyWait string

const (
	notFenced whyWait = "its lease has to expire, because its late writes are not refused (Fenced of both replicas)"
	// notRisked goes beyond notFenced: SucceedUnfenced would suffice.
	notRisked whyWait = "its lease has to expire, because its late writes are neither refused (Fenced of both replicas) nor accepted (SucceedUnfenced of both)"
	crashOnly whyWait = "its lease has to expire, because this replica acts on a crash only (Detection)"
	damped    whyWait = "terms of late began on such a sign, which may have been wrong, so for some time no replica acts on another one"
)

// wishTimes is about asking a leader of lower priority to step down.
type wishTimes struct {
	able  time.Time // since when this process could have led
	asked time.Time // when it last asked
	tried time.Time // when its last attempt to ask failed
}

// decision is what plan decides.
type decision struct {
	// seen is the observation that was judged.
	seen lease.Observation
	// verdict says what to do now, and why.
	verdict
	// takeover describes the term that would begin now.
	takeover Takeover
	// again is when to decide anew if nothing changes before; zero: only a change can alter the decision. With wait
	// it must not be in the past: the standby would spin, and in a synctest bubble the test would never end.
	again time.Time
	// nominate says whether this process should be a candidate, in mode coordinated.
	nominate nomination
	// remarks are what people should be told.
	remarks []remark
	memory
}

// nomination says what happens to this process's candidate. The zero value leaves it as it is.
type nomination int

const (
	// stand: the process becomes or stays a candidate.
	stand nomination = iota + 1
	// stepBack: the candidate is withdrawn.
	stepBack
)

// remark is a piece of news for people about a standby.
type remark string

const (
	modeIsOther        remark = "leaders use another mode"
	modeIsOurs         remark = "leaders use this process's mode again, or the Lease shows no mode"
	holderUnaccounted  remark = "the holder is not heard, and its lease does not expire in time"
	holderHeard        remark = "the holder that was not heard is heard again"
	mayNotAct          remark = "the holder shows signs of a death on which this process may not act yet"
	holderNotWaitedFor remark = "the holder that was not heard has gone"
	lastEpoch          remark = "no later term can begin on this Lease"
)

// plan decides what a standby does. The result depends on the arguments alone.
func plan(cfg Config, s situation) decision {
	d := decision{seen: s.seen, memory: s.memory, verdict: judge(s.seen, s.now, cfg.LeaseDuration, s.holder)}
	d.winnable = s.winnable.next(d.verdict, s.seen, s.holder.candidate != "", s.now)
	d.takeover = d.winnable.takeover()
	d.remarkOnMode(cfg)
	d.remarkOnEpoch()
	headStart := s.headStart(cfg, d.winnable.since)
	if s.holder.candidate != "" && d.trigger != TriggerElected {
		d.stand(s, cfg.isOther(s.seen.Mode), headStart)
	}
	switch d.action {
	case wait:
		d.waitForHolder(cfg, s)
	default:
		d.pause(cfg, s, headStart)
	}
	return d
}

// stand decides whether this process is a candidate, in mode coordinated, and adapts the verdict. When nobody holds the
// lease, the electing controller chooses the next holder, so the process only waits to be named. When the holder can be
// succeeded, the process takes it off the Lease (depose). It is no candidate while it rests, or while leaders use
// another mode.
func (d *decision) stand(s situation, other bool, headStart time.Time) {
	from := s.pace.rested // this applies even while another leads: the best candidate replaces it
	switch {
	case d.action == clear:
		return
	case !s.seen.IsKnown():
		// Named before it has read the Lease, it could not tell whether the epoch there is its own:
		// kube-apiserver names a holder without raising it.
		d.nominate = stepBack
		return
	case other && d.action != win:
		d.nominate = stepBack
		return
	case other:
		from = later(from, headStart)
	}
	if s.now.Before(from) {
		d.nominate, d.verdict = stepBack, verdict{action: wait, until: from}
		return
	}
	d.nominate = stand
	switch {
	case d.action != win:
	case s.seen.Holder() == "": // the electing controller names the next holder
		d.verdict = verdict{action: wait}
	default:
		d.action = depose
	}
}

// pause delays the action if it must not be taken yet: after a failed write on the same revision, while this process
// rests, while it gives others a head start, and while the next term's owner object does not exist.
func (d *decision) pause(cfg Config, s situation, headStart time.Time) {
	at := s.pace.earliest(d.action, s.seen.Revision, s.rests(cfg))
	if d.action == win && d.trigger != TriggerElected {
		at = later(at, headStart)
	}
	switch {
	case d.action == win && s.unready:
		d.action = wait
	case s.now.Before(at):
		d.action, d.again = wait, at
	}
}

// waitForHolder decides when to look at the holder again, whether to ask it to step down, and what people should be
// told of it.
func (d *decision) waitForHolder(cfg Config, s situation) {
	d.again = d.until
	if s.holder.near { // the lock file would show its death, but sends no event
		d.again = earlier(d.again, s.now.Add(lookAgain(cfg, s.holder.news, s.now)))
	}
	d.again = earlier(d.again, d.remarkOnHolder(cfg, s))
	d.again = earlier(d.again, d.remarkOnWaiting(cfg, s))
	due := s.preemption(cfg)
	if !due.IsZero() && !s.now.Before(due) {
		d.action, d.again = ask, time.Time{}
		return
	}
	d.again = earlier(d.again, due)
}

// preemption returns when this process asks the holder to step down; zero: it does not ask. It asks a holder of lower
// priority after it could have led for one lease duration. Each of its own terms that failed in a row doubles that
// time.
func (s situation) preemption(cfg Config) (at time.Time) {
	if !cfg.Preempt || s.holder.news.Sign != Alive || cfg.isOther(s.seen.Mode) || s.seen.Presence().Priority >= cfg.Priority {
		return time.Time{}
	}
	since := later(later(s.wish.able, s.pace.rested), s.wish.asked)
	at = since.Add(cfg.LeaseDuration << min(s.pace.failures, mostPreemptionDoublings))
	return later(at, s.wish.tried.Add(cfg.RetryPeriod/headStarts))
}

// mostPreemptionDoublings is how often that time is doubled at most. With default timings it then is a quarter of an
// hour.
const mostPreemptionDoublings = 6

// rests reports whether this process must rest after its last term: no other replica has led since, or the last one to
// lead failed by its own work, too.
func (s situation) rests(cfg Config) bool {
	return cfg.unelected || s.seen.Presence().Failed || s.seen.Lease != nil && s.seen.Epoch() == s.lastEpoch
}

// headStart returns until when this process leaves a free lease to preferred replicas; zero: none. winnable is since
// when the lease can be won. Preferred are replicas of the Lease's mode if that is another mode than this process's.
// Otherwise it is the replica that the last holder named as its successor, or else replicas of higher priority, or the
// process that the lease is assigned to.
func (s situation) headStart(cfg Config, winnable time.Time) time.Time {
	switch last := s.seen.Presence(); {
	case cfg.isOther(s.seen.Mode):
		if last.Alone { // the last holder had no standby of its mode
			return time.Time{}
		}
		return winnable.Add(modeHeadStart*cfg.RetryPeriod + kindOf(s.seen.Mode).patience)
	case last.Preferred == cfg.Replica:
		return time.Time{}
	case last.Preferred != "":
		return s.seen.Since.Add(cfg.RetryPeriod / headStarts)
	case last.StandbyPriority > cfg.Priority, s.assigned != "" && s.assigned != cfg.Instance:
		return winnable.Add(cfg.RetryPeriod / headStarts)
	default:
		return time.Time{}
	}
}

// isOther reports whether mode, that of the Lease, is another mode than this process's.
func (c Config) isOther(mode ModeName) bool {
	return !c.unelected && mode != "" && mode != c.kind().name
}

// modeHeadStart is how many retry periods a free lease is left to the replicas of its mode. A live one takes it at
// once, or after one retry period if it has just stepped down on request. After that time there is none, and a replica
// of another mode takes the lease.
const modeHeadStart = 2

// headStarts is how many head starts make a retry period.
const headStarts = 4

// lookAgain returns how long to wait before looking again whether a process on this machine is dead, because no event
// shows that. The time is short if contact with the process has just broken off.
func lookAgain(cfg Config, news News, now time.Time) time.Duration {
	if news.Sign != Dead {
		return cfg.RetryPeriod
	}
	return min(max(now.Sub(news.Since)/2, time.Millisecond), cfg.RetryPeriod)
}

// remarkOnMode tells people when leaders begin to use another mode than this process's, and when they stop.
func (d *decision) remarkOnMode(cfg Config) {
	var mode ModeName
	if cfg.isOther(d.seen.Mode) {
		mode = d.seen.Mode
	}
	if mode == d.told.mode {
		return
	}
	d.told.mode = mode
	if mode == "" {
		d.remark(modeIsOurs)
	} else {
		d.remark(modeIsOther)
	}
}

// remarkOnEpoch tells people when no further term can begin on the Lease.
func (d *decision) remarkOnEpoch() {
	if d.seen.Lease != nil && d.seen.Epoch() == math.MaxInt32 && d.seen.Lease.UID != d.told.exhausted {
		d.told.exhausted = d.seen.Lease.UID
		d.remark(lastEpoch)
	}
}

// remarkOnHolder tells people when the holder has not been heard for too long, and when it is heard again. It returns
// when to look again.
func (d *decision) remarkOnHolder(cfg Config, s situation) (again time.Time) {
	_, due := s.unaccounted(cfg)
	same, waits := d.told.holder == s.seen.Holder(), d.told.holder != ""
	heard := due.IsZero() || s.seen.Expires() && s.now.Before(due)
	switch {
	case waits && same && heard:
		d.told.holder = ""
		d.remark(holderHeard)
	case waits && !same:
		d.told.holder = ""
		d.remark(holderNotWaitedFor)
	}
	switch {
	case due.IsZero() || d.told.holder != "":
		return time.Time{}
	case s.now.Before(due):
		return due
	}
	d.told.holder = s.seen.Holder()
	d.remark(holderUnaccounted)
	return time.Time{}
}

// remarkOnWaiting tells people once for each sign that this process may not act on it. It returns when to look again:
// the death of a process on this machine will soon be proved.
func (d *decision) remarkOnWaiting(cfg Config, s situation) (again time.Time) {
	w, until := s.waits(cfg)
	if until.IsZero() || w == d.told.waiting {
		return time.Time{}
	}
	if due := w.since.Add(cfg.RetryPeriod / headStarts); s.holder.near && s.now.Before(due) {
		return due
	}
	d.told.waiting = w
	d.remark(mayNotAct)
	return time.Time{}
}

func (d *decision) remark(r remark) { d.remarks = append(d.remarks, r) }

// unaccounted returns since when the holder has not been heard, and when that has lasted too long. Both are zero if
// there is no holder, if its lease expires soon, or if its process is known to be alive. So only two kinds of holders
// count: those that hold the lease for life, and those whose lease lasts far longer than this process's (see believed).
// Such a holder keeps the lease until an operator declares it dead: it has a right to it for as long as the Lease says.
func (s situation) unaccounted(cfg Config) (since, due time.Time) {
	news, contact := s.holder.news, s.seen.Presence().Contact
	switch {
	case s.seen.Holder() == "", s.holder.mine:
		return time.Time{}, time.Time{}
	case s.seen.Expires():
		due := s.seen.Since.Add(believed * cfg.LeaseDuration)
		if !s.seen.Expiry(cfg.LeaseDuration).After(due) {
			return time.Time{}, time.Time{}
		}
		return s.seen.Since, due
	case cfg.Detector == nil: // this process would hear nobody
		return time.Time{}, time.Time{}
	case news.Sign == Alive, news.Since.IsZero(): // it is alive, or is not followed yet
		return time.Time{}, time.Time{}
	// the garbage collector deletes the Lease when this holder dies
	case contact == (lease.Contact{}) && cfg.kind().owned:
		return time.Time{}, time.Time{}
	}
	// the holder before may not have been heard either, so count from this term's beginning
	since = later(news.Since, s.seen.TermSince)
	return since, since.Add(cfg.LeaseDuration)
}

// waits returns on which sign of the holder's death this process may not act, and until when it waits if the holder
// does not renew. until is zero if there is no such sign, or if it may act. A lease that is held for life does not
// expire: see unaccounted.
func (s situation) waits(cfg Config) (w waiting, until time.Time) {
	k := s.holder
	if s.seen.Holder() == "" || k.mine || !s.seen.Expires() || k.news.Sign != Dead && k.news.Sign != Silent {
		return waiting{}, time.Time{}
	}
	w = waiting{holder: s.seen.Holder(), sign: k.news.Sign, since: k.news.Since}
	until = s.seen.Expiry(cfg.LeaseDuration)
	switch pause := s.seen.TermSince.Add(suspicionPause(k.suspicions)); {
	case k.seemsGone() && s.now.Before(pause):
		w.why, until = damped, earlier(until, pause)
	case k.seemsGone():
		return waiting{}, time.Time{}
	case w.sign == Dead:
		w.why = notRisked
	case k.fenced:
		w.why = crashOnly
	default:
		w.why = notFenced
	}
	if !s.now.Before(until) {
		return waiting{}, time.Time{}
	}
	return w, until
}

// believed is for how many of this process's lease durations a holder is taken to be alive without a renewal, if its
// own lease lasts longer.
const believed = 4

// earlier returns the earlier of two times, of which zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
