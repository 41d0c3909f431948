package supervisor

import (
	"context"
	"errors"
	"time"

	"github.com/regent-project/regent/pkg/controllers"
)

// outcome is what became of a controller's code.
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

// moment is when that happened.
type moment string

const (
	constructing moment = "constructor"
	starting     moment = "starting" // Run was called; a Readier is not ready yet
	running      moment = "running"
	draining     moment = "draining" // its context had ended with the term
)

// effect is what follows.
type effect string

const (
	// ends: nothing more happens, the term is ending.
	ends effect = "ends with the term"
	// restarts: construct and run it anew, after a pause.
	restarts effect = "restart"
	// leavesOut: it takes no part in this term any more, nor do those that need it.
	leavesOut effect = "left out"
	// endsTerm: it is marked failed and the term ends.
	endsTerm effect = "step down"
	// endsProcess: the process ends.
	endsProcess effect = "exit"
	// perseveres: it is marked failed, the term goes on, and it is tried again after a pause of up to a minute.
	perseveres effect = "failed, tried again"
)

// circumstances are what a decision depends on beside outcome and moment.
type circumstances struct {
	policy controllers.Policy
	// exhausted: it has been restarted as often as it may be in a while.
	exhausted bool
	// tolerated: this replica and its predecessor have stepped down for it before, so that to step down is of no use.
	tolerated bool
}

// decide is the whole of the supervisor's judgement; docs/SUPERVISION.md prints it as a table.
func decide(o outcome, m moment, c circumstances) effect {
	switch {
	case o == exits:
		return endsProcess
	case m == draining && (o == panicked || o == late) && c.policy == controllers.Exit:
		return endsProcess
	case m == draining:
		return ends
	case o == disabled:
		return leavesOut
	case o != stepsDown && c.policy == controllers.Exit:
		return endsProcess
	case c.tolerated:
		return perseveres
	case o == stepsDown, o == stuck, c.policy == controllers.StepDown, c.exhausted:
		return endsTerm
	default:
		return restarts
	}
}

// outcomeOf says what an error from a controller's code means. ctx is the one it was given.
func outcomeOf(ctx context.Context, err error) outcome {
	_, isPanic := errors.AsType[*controllers.Panic](err)
	_, isStall := context.Cause(ctx).(*stallError) //nolint:errorlint // another's stall, for which the term ends, comes wrapped
	switch {
	case errors.Is(err, controllers.ErrExit): // also as a panic's value, which others see through
		return exits
	case errors.Is(err, controllers.ErrStepDown):
		return stepsDown
	case isPanic, errors.Is(err, errGoexit):
		return panicked
	case errors.Is(err, controllers.ErrDisabled):
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

// failed takes in a failure after so much work. It returns the pause before the next attempt, without jitter, and
// whether there were too many: in the window, or in a row if it was a stall, which takes long by itself. A failure that is
// excused does not count.
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
