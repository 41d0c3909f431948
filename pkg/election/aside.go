package election

import "time"

// say tells those who follow this process how it goes with its term.
func (e *Elector) say(term Term, condition Condition) {
	if holder := term.Token().Holder; holder != "" && e.cfg.Detector != nil {
		e.cfg.Detector.Say(Statement{Holder: holder, Condition: condition})
	}
}

// trouble is what a term does about renewals that fail.
type trouble struct {
	asked bool      // its followers, which of them could write the Lease
	heir  string    // the replica that was the first to say so; empty: none
	since time.Time // when it did
}

// stepAside ends a term that cannot be renewed while another process could lead, and returns when to ask again. In trouble, which
// begins troubledAfter retry periods after the last renewal if one has failed since, it asks its followers who could write the
// Lease. From the first answer on the store is known to take writes: if a renewal that is tried after it fails too, or none succeeds
// for as long as one may take, this process alone cannot write, and had better make way. Otherwise what was lost is made good by the
// next try, as when etcd has elected another leader. If nobody answers, nobody could lead, and the term goes on until its deadline.
//
// A renewal that is late is no trouble, before it has failed: the store may be slow, for others no less; or this process was
// paused, and renews next.
func (e *Elector) stepAside(c claim, t *trouble, now time.Time) (again time.Time, cause error) {
	renewed := c.renewed()
	begins := renewed.sent.Add(troubledAfter * e.cfg.RetryPeriod)
	switch {
	case !renewed.failing(), now.Before(begins):
		if t.asked {
			e.say(c.term(), Well)
		}
		*t = trouble{}
		if renewed.failing() {
			again = begins
		}
		return again, nil
	case !t.asked:
		answers := e.cfg.Detector.Confirmations()
		for len(answers) > 0 { // to what is long over
			<-answers
		}
		t.asked = true
		e.say(c.term(), Troubled)
		return time.Time{}, nil
	case t.heir == "":
		return time.Time{}, nil
	}
	until := t.since.Add(max(e.cfg.RetryPeriod, e.cfg.requestTimeout()))
	if renewed.failed.After(t.since) || !now.Before(until) {
		return time.Time{}, because(RenewDeadline, "the last renewal was sent %v ago, and replica %q could write the Lease for %v",
			now.Sub(renewed.sent).Round(time.Millisecond), t.heir, now.Sub(t.since).Round(time.Millisecond))
	}
	return until, nil
}

// hear takes in what a follower says: it could write the Lease.
func (e *Elector) hear(c claim, said Confirmation, t *trouble) {
	if said.Holder == c.term().Token().Holder && t.asked && t.heir == "" { // else it is late
		t.heir, t.since = said.Replica, time.Now()
	}
}

// troubledAfter is how many retry periods without a renewal are trouble, if one has failed meanwhile.
const troubledAfter = 2
