package ranges

import (
	"context"
	"time"

	"github.com/regent-project/regent/pkg/election"
)

// restsAtEnd is for how many times as long as the end of a term the next one goes on, when a process stops.
const restsAtEnd = 2

// leading is the state of an Elector whose process leads: see election.Status.
const leading = "leading"

// contest is a running Elector.
type contest struct {
	elector *election.Elector
	end     context.CancelCauseFunc
	ended   chan struct{} // closed when its Run has returned
}

// begin runs an Elector until its contest is told to end. exit is called with what Run has returned.
func begin(ctx context.Context, elector *election.Elector, lead election.LeadFunc, exit func(error)) contest {
	ctx, end := context.WithCancelCause(ctx)
	c := contest{elector: elector, end: end, ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		exit(elector.Run(ctx, lead))
	}()
	return c
}

// leads reports whether this process leads the range.
func (c contest) leads() bool { return c.elector.Status().State == leading }

// endAll ends all contests: at once those in which this process does not lead, and then its terms one after the other
// with a rest between them, so that each range has a leader until its turn comes. It returns when all have been told to
// end, after longest at most.
func endAll(contests []contest, cause error, longest time.Duration) {
	var led []contest
	for _, c := range contests {
		if c.leads() {
			led = append(led, c)
		} else {
			c.end(cause)
		}
	}
	for i, c := range led {
		c.end(cause)
		if i == len(led)-1 {
			return
		}
		began, turn := time.Now(), longest/time.Duration(len(led))
		timer := time.NewTimer(turn)
		select {
		case <-c.ended: // whoever takes the range has to begin its term
			took := time.Since(began)
			timer.Reset(min(turn-took, restsAtEnd*took))
			<-timer.C
		case <-timer.C:
		}
	}
}
