package election

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/regent-project/regent/pkg/election/internal/lease"
)

// situation is all that a standby decides by, beside its configuration. It is a value: each look makes another.
type situation struct {
	now  time.Time
	seen lease.Observation
	// holder is what is known of the holder beyond the Lease.
	holder knowledge
	// pace says when this process may campaign again, lastEpoch is the epoch of its last term.
	pace      pace
	lastEpoch int64
	// unready: the next term's owner object is not there yet, so that none can begin, in mode for-life.
	unready bool
	memory
}

// memory is what a standby remembers from look to look.
type memory struct {
	winnable winnable
	told     said
	wish     wished
}

// said is what people were told of why this process does not lead, so that they are told once.
type said struct {
	mode      ModeName  // in which leaders lead, and this process would not
	holder    string    // who is not accounted for
	exhausted types.UID // the Lease on which no term can begin any more
}

// wished is when this process could have asked a leader of a lower priority to make way, and did.
type wished struct {
	able  time.Time // since when it could have led
	asked time.Time // when it asked last
	tried time.Time // when it could not ask, last
}

// decision is what a standby does.
type decision struct {
	// seen is what it was decided on.
	seen lease.Observation
	// verdict is what is to be done at once, and why.
	verdict
	// takeover is how the term comes about that begins with it.
	takeover Takeover
	// again is when a standby that waits looks again if nothing changes before; zero: only news changes the decision.
	again time.Time
	// nominate says whether this process stands as a candidate, in mode coordinated.
	nominate nomination
	// remarks are what people are told.
	remarks []remark
	memory
}

// nomination says what becomes of this process's candidacy. Zero: nothing.
type nomination int

const (
	// stand: it is a candidate.
	stand nomination = iota + 1
	// stepBack: it is none.
	stepBack
)

// remark is something that people are told about a standby.
type remark string

const (
	modeIsOther        remark = "leaders lead in another mode"
	modeIsOurs         remark = "leaders lead in this process's mode again, or nobody says in which"
	holderUnaccounted  remark = "the holder is not heard, and no expiry ends its lease in time"
	holderHeard        remark = "the holder that was not heard is heard again"
	holderNotWaitedFor remark = "the holder that was not heard has gone"
	lastEpoch          remark = "no later term can begin on this Lease"
)

// plan decides what a standby does. It is a function of its arguments alone.
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

// stand decides whether this process stands as a candidate, and makes of the verdict what is left of it: who wins in mode
// coordinated is decided by whoever elects, once nobody holds the lease. It does not stand while it rests, nor while leaders lead in
// another mode.
func (d *decision) stand(s situation, other bool, headStart time.Time) {
	from := s.pace.rested // also while another leads: the best candidate takes the lease from it
	switch {
	case d.action == clear:
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
	case s.seen.Holder() == "": // whoever elects sees it, too
		d.verdict = verdict{action: wait}
	default:
		d.action = depose
	}
}

// pause puts off what is to be done: a write that has just failed, a campaign while this process rests, while others have a head
// start, and while what the term would hang on is not there.
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

// waitForHolder decides when to look at the holder again, whether to ask it to make way, and what people are told of it.
func (d *decision) waitForHolder(cfg Config, s situation) {
	d.again = d.until
	if s.holder.near { // its death shows on this machine, not on the Lease
		d.again = earlier(d.again, s.now.Add(lookAgain(cfg, s.holder.news, s.now)))
	}
	d.again = earlier(d.again, d.remarkOnHolder(cfg, s))
	due := s.preemption(cfg)
	if !due.IsZero() && !s.now.Before(due) {
		d.action, d.again = ask, time.Time{}
		return
	}
	d.again = earlier(d.again, due)
}

// preemption is when this process asks the holder to make way, zero if it does not. It asks a holder of a lower priority, if it
// could have led for long enough: a lease duration, and twice as long for each of its terms that failed, in a row.
func (s situation) preemption(cfg Config) (at time.Time) {
	if !cfg.Preempt || s.holder.news.Sign != Alive || cfg.isOther(s.seen.Mode) || s.seen.Presence().Priority >= cfg.Priority {
		return time.Time{}
	}
	since := later(later(s.wish.able, s.pace.rested), s.wish.asked)
	at = since.Add(cfg.LeaseDuration << min(s.pace.failures, mostPreemptionDoublings))
	return later(at, s.wish.tried.Add(cfg.RetryPeriod/headStarts))
}

// mostPreemptionDoublings caps what a replica waits whose terms fail: about a quarter of an hour, by default.
const mostPreemptionDoublings = 6

// rests reports whether the rest after this process's last term counts: that term is still the last, or the last one ended
// by its own work, too.
func (s situation) rests(cfg Config) bool {
	return cfg.unelected || s.seen.Presence().Failed || s.seen.Lease != nil && s.seen.Epoch() == s.lastEpoch
}

// headStart returns until when this process leaves a lease that can be won since winnable to others; zero: it does not. It leaves it
// to replicas of the Lease's mode, if that is another; or else to the replica that its last holder preferred, or to those of a higher
// priority.
func (s situation) headStart(cfg Config, winnable time.Time) time.Time {
	switch last := s.seen.Presence(); {
	case cfg.isOther(s.seen.Mode):
		if last.Alone { // its last holder was the last of them
			return time.Time{}
		}
		return winnable.Add(modeHeadStart*cfg.RetryPeriod + kindOf(s.seen.Mode).patience)
	case last.Preferred == cfg.Replica:
		return time.Time{}
	case last.Preferred != "":
		return s.seen.Since.Add(cfg.RetryPeriod / headStarts)
	case last.StandbyPriority > cfg.Priority:
		return winnable.Add(cfg.RetryPeriod / headStarts)
	default:
		return time.Time{}
	}
}

// isOther reports whether leaders lead in another mode than this process would.
func (c Config) isOther(mode ModeName) bool {
	return !c.unelected && mode != "" && mode != c.kind().name
}

// modeHeadStart is how many retry periods a lease that can be won is left to the replicas of its mode: one that lives takes
// it at once, or after a retry period, if it was asked to step down itself. After that there is none, and the mode is changed.
const modeHeadStart = 2

// headStarts is how many head starts there are in a retry period.
const headStarts = 4

// lookAgain is after what time to look again whether a process on this machine is dead, which shows in no event: soon, if
// contact with it has just broken off.
func lookAgain(cfg Config, news News, now time.Time) time.Duration {
	if news.Sign != Dead {
		return cfg.RetryPeriod
	}
	return min(max(now.Sub(news.Since)/2, time.Millisecond), cfg.RetryPeriod)
}

// remarkOnMode tells when leaders lead in another mode than this process would, and when they do not any more.
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

// remarkOnEpoch tells when no later term can begin on the Lease.
func (d *decision) remarkOnEpoch() {
	if d.seen.Lease != nil && d.seen.Epoch() == math.MaxInt32 && d.seen.Lease.UID != d.told.exhausted {
		d.told.exhausted = d.seen.Lease.UID
		d.remark(lastEpoch)
	}
}

// remarkOnHolder tells when the holder is not accounted for any more, and when it is again. It returns when to look again.
func (d *decision) remarkOnHolder(cfg Config, s situation) (again time.Time) {
	_, due := s.unaccounted(cfg)
	same, waits := d.told.holder == s.seen.Holder(), d.told.holder != ""
	heard := due.IsZero() || !s.seen.HeldForLife() && s.now.Before(due)
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

func (d *decision) remark(r remark) { d.remarks = append(d.remarks, r) }

// unaccounted returns since when the holder has not been heard, and when that has been too long. Both are zero if there is no
// holder, if its lease expires soon enough, or if it is known to live. So it is about those who hold for life, and about those whose
// lease lasts far longer than this process's (see believed). They keep the lease until an operator says that they are gone: a holder
// has a right to its lease for as long as the Lease says.
func (s situation) unaccounted(cfg Config) (heard, due time.Time) {
	news, contact := s.holder.news, s.seen.Presence().Contact
	switch {
	case s.seen.Holder() == "", s.holder.mine:
		return time.Time{}, time.Time{}
	case !s.seen.HeldForLife():
		due := s.seen.Since.Add(believed * cfg.LeaseDuration)
		if !s.seen.Expiry(cfg.LeaseDuration).After(due) {
			return time.Time{}, time.Time{}
		}
		return s.seen.Since, due
	case cfg.Detector == nil: // nobody would be heard
		return time.Time{}, time.Time{}
	case news.Sign == Alive, news.Since.IsZero(): // it is not followed yet
		return time.Time{}, time.Time{}
	case contact == (lease.Contact{}) && cfg.kind().owned: // the garbage collector accounts for it
		return time.Time{}, time.Time{}
	}
	heard = later(news.Since, s.seen.TermSince) // the holder before may not have been heard either
	return heard, heard.Add(cfg.LeaseDuration)
}

// believed is for how many of this process's lease durations a holder whose own lease lasts longer is taken to live, without a
// renewal.
const believed = 4

// earlier is the earlier of two times, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// later is the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
