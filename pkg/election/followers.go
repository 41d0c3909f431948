package election

import "slices"

// followers are the replicas that follow this process now; nil without a Detector.
func (c Config) followers() []Standby {
	if c.Detector == nil {
		return nil
	}
	return c.Detector.Followers()
}

// standbys is what a leader knows of those who could succeed it: the highest priority of those of its mode, and whether there are
// none.
func (c Config) standbys() (highest int32, none bool) {
	if c.Detector == nil {
		return 0, false // unknown
	}
	none = true
	for _, standby := range c.followers() {
		if standby.Mode != c.kind().name {
			continue
		}
		if none || standby.Priority > highest {
			highest = standby.Priority
		}
		none = false
	}
	return highest, none
}

// follows reports whether the process follows this one that led as that holder last.
func (c Config) follows(holder string) bool {
	return slices.ContainsFunc(c.followers(), func(s Standby) bool { return s.Led == holder })
}
