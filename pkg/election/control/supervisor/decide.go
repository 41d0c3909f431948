package supervisor

import (
	"context"
	"errors"
	"time"

	"github.com/regent-project/regent/pkg/election/control"
)

// outcome is what happened to a controller's code.
type outcome string

const (
	returned  outcome = "nil, or its context's error"
	failed    outcome = "another error"
	panicked  outcome = "panic"
	disabled  outcome = "ErrDisabled"
	stepsDown outcome = "ErrStepDown"
	exits     outcome = "ErrExit"
	stalled   outcome = "stalled, and ended when cancelled"
	stuck     outcome = "stalled, and did not end when cancelled"
	late      outcome = "not ended at the drain timeout"
)

// moment is when the outcome occurred.
type moment string

const (
	constructing moment = "constructor"
	starting     moment = "starting" // Run was called, and a Readier is not ready yet
	running      moment = "running"
	draining     moment = "draining" // the term has ended, and with it the controller's context
)

// effect is what the supervisor does about an outcome.
type effect string

const (
	// ends: nothing, because the term is ending.
	ends effect = "ends with the term"
	// restarts: construct and run the controller again after a pause.
	restarts effect = "restart"
	// leavesOut: leave the controller, and those that need it, out of this term.
	leavesOut effect = "left out"
	// endsTerm: mark the controller as failed and end the term.
	endsTerm effect = "step down"
	// endsProcess: end the process.
	endsProcess effect = "exit"
	// perseveres: mark the controller as failed, go on with the term, and try the controller again after a pause of
	// up to a minute.
	perseveres effect = "failed, tried again"
)

// circumstances are what a decision depends on besides outcome and moment.
type circumstances struct {
	policy control.Policy
	// exhausted: the controller has been restarted too often within the window.
	exhausted bool
	// tolerated: this replica and its predecessor have stepped down for this controller before, so stepping down
	// again is of no use.
	tolerated bool
}

// decide makes all decisions of the supervisor. docs/SUPERVISION.md prints it as a table.
func decide(o outcome, m moment, c circumstances) effect {
	switch {
	case o == exits:
		return endsProcess
	case m == draining && (o == panicked || o == late) && c.policy == control.Exit:
		return endsProcess
	case m == draining:
		return ends
	case o == disabled:
		return leavesOut
	case o != stepsDown && c.policy == control.Exit:
		return endsProcess
	case c.tolerated:
		return perseveres
	case o == stepsDown, o == stuck, c.policy == control.StepDown, c.exhausted:
		return endsTerm
	default:
		return restarts
	}
}

// outcomeOf returns the outcome for an error from a controller's code. ctx is the context that the code was given.
func outcomeOf(ctx context.Context, err error) outcome {
	_, isPanic := errors.AsType[*control.Panic](err)
	_, isStall := context.Cause(ctx).(*stallError) //nolint:errorlint // a stall of another controller, for which the term ends, comes wrapped
	switch {
	case errors.Is(err, control.ErrExit): // before isPanic: it may be the value of a panic
		return exits
	case errors.Is(err, control.ErrStepDown):
		return stepsDown
	case isPanic, errors.Is(err, errGoexit):
		return panicked
	case errors.Is(err, control.ErrDisabled):
		return disabled
	case isStall:
		return stalled
	case err == nil, ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))):
		return returned
	default:
		return failed
	}
}

// A controller that fails is run anew after firstPause, then twice that, and so on up to longestPause, each up to a
// tenth longer by chance. One that has then run for the restart window begins again with the first.
const (
	firstPause   = 200 * time.Millisecond
	longestPause = time.Minute
	pauseJitter  = 0.1
)

// intensity counts failures.
type intensity struct {
	limit  int
	window time.Duration

	streak int
	recent []time.Time // within the window
}

// failed records a failure after a time of work. It returns the pause before the next attempt, without jitter, and
// whether there were too many failures: within the window, or in a row for stalls, which take long by themselves. An
// excused failure does not count.
func (i *intensity) failed(now time.Time, worked time.Duration, stall, excused bool) (pause time.Duration, exhausted bool) {
	if worked >= i.window {
		i.streak = 0
	}
	pause = firstPause
	for n := i.streak; n > 0 && pause < longestPause; n-- {
		pause *= 2
	}
	pause = min(pause, longestPause)
	if excused {
		return pause, false
	}
	i.streak++
	i.recent = append(i.recent, now)
	for now.Sub(i.recent[0]) >= i.window {
		i.recent = i.recent[1:]
	}
	return pause, len(i.recent) > i.limit || stall && i.streak > i.limit
}
