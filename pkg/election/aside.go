package election

import "time"

// say tells those who follow this process how it goes with its term.
func (e *Elector) say(term Term, condition Condition) {
	if holder := term.Token().Holder; holder != "" && e.cfg.Detector != nil {
		e.cfg.Detector.Say(Statement{Holder: holder, Condition: condition})
	}
}

// askIfTroubled tells those who follow this process when its term cannot be renewed, so that one of them had better lead, and
// when it has been again. Only then it listens: a follower that reads the Lease can succeed this process, which steps aside
// for it. If none does, nobody reaches the store, and the term goes on until its deadline.
//
// A renewal that is late is no trouble, before it has failed: the store may be slow, for the follower's writes no less than
// for ours, and its reads do not tell; or this process was paused, and renews next.
func (e *Elector) askIfTroubled(c claim, listening <-chan Confirmation, now, again time.Time) (<-chan Confirmation, time.Time) {
	renewed, failing := c.renewed()
	late := renewed.Add(troubledAfter * e.cfg.RetryPeriod)
	switch troubled := failing && !now.Before(late); {
	case !troubled:
		if listening != nil {
			e.say(c.term(), Well)
		}
		if failing {
			again = earlier(again, late)
		}
		return nil, again
	case listening == nil:
		listening = e.cfg.Detector.Confirmations()
		for len(listening) > 0 { // answers to what is long over
			<-listening
		}
		e.say(c.term(), Troubled)
	}
	return listening, again
}

// troubledAfter is how many retry periods without a renewal are trouble, if one has failed meanwhile.
const troubledAfter = 2
