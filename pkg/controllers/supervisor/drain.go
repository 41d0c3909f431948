package supervisor

import (
	"bytes"
	"fmt"
	"runtime/pprof"
	"strings"
	"time"

	"k8s.io/klog/v2"
)

// firstReminder is how long after the first report late controllers are reported again. Every further pause is twice
// as long: they may hang for days.
const firstReminder = time.Minute

// watchDrain reports, from the end of ctx until joined is closed, who is late.
func (s *supervision) watchDrain(joined <-chan struct{}) {
	select {
	case <-s.ctx.Done():
	case <-joined:
		return
	}
	if s.cfg.DrainTimeout == 0 {
		<-joined
		return
	}
	logger, began := klog.FromContext(s.ctx), time.Now()
	if !pause(s.cfg.DrainTimeout, joined) {
		return
	}
	names := s.late()
	if s.cfg.OnLate != nil {
		s.cfg.OnLate(names)
	}
	reportLate(logger, names, began)
	for reminder := firstReminder; pause(reminder, joined); reminder *= 2 {
		reportLate(logger, s.late(), began)
	}
	logger.Info("Late controllers have returned", "controllers", names, "drain", time.Since(began))
}

// pause waits for d, and returns false if joined was closed meanwhile.
func pause(d time.Duration, joined <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-joined:
		return false
	}
}

// late names the controllers that have not returned, and shows them in metrics.
func (s *supervision) late() []string {
	var names []string
	for _, c := range s.children {
		select {
		case <-c.joined:
		default:
			c.become(Late)
			names = append(names, c.Name)
		}
	}
	return names
}

func reportLate(logger klog.Logger, names []string, began time.Time) {
	stacks := goroutines(names)
	for _, name := range names {
		logger.Error(nil, "Controller is late: it has not returned since its context ended", "controller", name,
			"drain", time.Since(began), "stacks", stacks[name])
	}
}

// goroutines returns the stacks of the named controllers' goroutines, equal ones once with their number, as the
// profiler prints them.
func goroutines(names []string) map[string]string {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		fmt.Fprintf(&profile, "no stacks: %v", err)
	}
	stacks := map[string]string{}
	for record := range strings.SplitSeq(profile.String(), "\n\n") {
		for _, name := range names {
			if strings.Contains(record, fmt.Sprintf("%q:%q", label, name)) {
				stacks[name] += record + "\n\n"
			}
		}
	}
	return stacks
}
