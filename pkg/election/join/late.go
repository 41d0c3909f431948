package join

import (
	"fmt"
	"strings"
	"time"
)

// Late is the error of a scope whose goroutines have not ended in time. The scope still waits for them, and so does its
// caller: an elector whose work this is keeps its process in quarantine meanwhile.
type Late struct {
	// For is how long ago the scope's context ended.
	For time.Duration
	// Goroutines are those that are left.
	Goroutines []Goroutine
}

// Goroutine stands for the goroutines of a scope that have the same stack and labels.
type Goroutine struct {
	// Function is the one with which they began.
	Function string
	// Labels are their profiler labels, except that of the scope, as "key":"value" pairs; empty if there are none.
	Labels string
	// Number is how many there are.
	Number int
	// Stack is theirs, in the text format of a goroutine profile.
	Stack string
}

// Error names the functions with which the goroutines began, and their labels.
func (l *Late) Error() string {
	var names []string
	for _, g := range l.Goroutines {
		name := g.Function
		if g.Labels != "" {
			name += " {" + g.Labels + "}"
		}
		if g.Number > 1 {
			name = fmt.Sprintf("%s (%d)", name, g.Number)
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		names = []string{"none that is waited for, but work or undo functions go on"}
	}
	return fmt.Sprintf("goroutines have not ended %v after they were asked to: %s", l.For.Round(time.Millisecond), strings.Join(names, ", "))
}

// Stacks returns the stacks of all of them.
func (l *Late) Stacks() string {
	var all strings.Builder
	for _, g := range l.Goroutines {
		all.WriteString(g.Stack)
		all.WriteString("\n\n")
	}
	return all.String()
}

// watch reports who is late, from the end of the scope's context until the scope has ended. It looks only when there is
// something to report.
func (s *Scope) watch() {
	defer close(s.watched)
	select {
	case <-s.ctx.Done():
	case <-s.done:
		return
	}
	began, patience := time.Now(), s.options.Patience
	for ; pause(patience, s.done); patience *= 2 {
		s.report(&Late{For: time.Since(began), Goroutines: s.Running()})
	}
	if patience > s.options.Patience {
		s.logger.Info("Late goroutines have ended", "after", time.Since(began))
	}
}

// pause waits for d. It returns false if done is closed first.
func pause(d time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-done:
		return false
	}
}

func (s *Scope) report(l *Late) {
	if s.options.OnLate != nil {
		s.options.OnLate(l)
		return
	}
	s.logger.Error(l, "Goroutines are late: what comes next waits for them", "stacks", l.Stacks())
}

// Running returns the goroutines of the scope that its end would wait for now. It looks at all goroutines of the
// process.
func (s *Scope) Running() []Goroutine {
	at, _ := look()
	return s.among(at)
}
