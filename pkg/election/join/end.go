package join

import "time"

// The pauses between looks at the goroutines that are left. The first is for those that end as soon as they are asked
// to.
const (
	firstPause   = time.Millisecond
	longestPause = 100 * time.Millisecond
	// leisure is how many times as long as a look the longest pause is at least.
	leisure = 20
)

// End ends the scope: its context ends, what was registered is undone, and End returns when all goroutines of the scope
// have ended, however long that takes. Call it outside of the scope: it would wait for its caller. A panic of an undo
// function becomes one of End, when all has ended. Further calls wait for the first.
func (s *Scope) End() {
	if p := s.end(); p != nil {
		panic(p)
	}
}

func (s *Scope) end() *Panic {
	if !s.becomeEnding() {
		<-s.done
		return nil
	}
	close(s.over)
	<-s.ctx.Done()
	for pause := firstPause; ; {
		s.undoAll()
		wait(pause)
		at, cost := look()
		if len(s.among(at)) == 0 && s.becomeEnded() {
			break
		}
		pause = min(max(2*pause, cost), max(longestPause, leisure*cost))
	}
	<-s.watched
	return s.fault
}

func wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// becomeEnding returns false if another call has done so.
func (s *Scope) becomeEnding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != open {
		return false
	}
	s.state = ending
	return true
}

// becomeEnded is called after a look that has shown no goroutine of the scope. It returns false if that look came too
// early.
func (s *Scope) becomeEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.doing > 0 || s.undoing || s.undo.Len() > 0 {
		return false
	}
	s.state = ended
	forget(s)
	close(s.done)
	return true
}

// undoAll calls the undo functions, unless a goroutine does so already. It is a goroutine of the scope, so that one
// that hangs is reported.
func (s *Scope) undoAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.undoing || s.undo.Len() == 0 {
		return
	}
	s.undoing = true
	s.start(func() {
		for undo := s.last(); undo != nil; undo = s.last() {
			s.blame(contain(undo))
		}
	})
}

// last takes the latest undo function; nil if there is none.
func (s *Scope) last() func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	latest := s.undo.Back()
	if latest == nil {
		s.undoing = false
		return nil
	}
	return s.undo.Remove(latest).(func())
}

func (s *Scope) blame(p *Panic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault == nil {
		s.fault = p
	}
}
