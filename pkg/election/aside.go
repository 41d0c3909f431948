package election

import "time"

// say tells those who follow this process how it goes with its term.
func (e *Elector) say(term Term, condition Condition) {
	if holder := term.Token().Holder; holder != "" && e.cfg.Detector != nil {
		e.cfg.Detector.Say(Statement{Holder: holder, Condition: condition})
	}
}

// askIfTroubled tells those who follow this process when its term cannot be renewed, so that one of them had better lead, and
// when it has been again. Only then answers count: a follower that reads the Lease can succeed this process, which steps aside
// for it. If none does, nobody reaches the store, and the term goes on until its deadline.
//
// A renewal that is late is no trouble, before it has failed: the store may be slow, for the follower's writes no less than
// for ours, and its reads do not tell; or this process was paused, and renews next.
func (e *Elector) askIfTroubled(c claim, asking bool, now, again time.Time) (troubled bool, _ time.Time) {
	renewed, failing := c.renewed()
	late := renewed.Add(troubledAfter * e.cfg.RetryPeriod)
	switch troubled = failing && !now.Before(late); {
	case !troubled:
		if asking {
			e.say(c.term(), Well)
		}
		if failing {
			again = earlier(again, late)
		}
	case !asking:
		answers := e.cfg.Detector.Confirmations()
		for len(answers) > 0 { // to what is long over
			<-answers
		}
		e.say(c.term(), Troubled)
	}
	return troubled, again
}

// makeWay is why this term ends in view of what a follower says: it is troubled and the follower reads the Lease. Nil if it need
// not.
func (e *Elector) makeWay(c claim, said Confirmation, troubled bool) error {
	switch sent, failing := c.renewed(); {
	case said.Holder != c.term().Token().Holder:
		return nil // late
	case troubled && failing:
		return because(RenewDeadline, "the last renewal was sent %v ago, and replica %q reaches the Lease", time.Since(sent).Round(time.Millisecond), said.Replica)
	default:
		return nil
	}
}

// troubledAfter is how many retry periods without a renewal are trouble, if one has failed meanwhile.
const troubledAfter = 2
