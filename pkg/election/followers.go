package election

import "slices"

// followers returns the replicas that follow this process now; nil without a Detector.
func (c Config) followers() []Standby {
	if c.Detector == nil {
		return nil
	}
	return c.Detector.Followers()
}

// is reports whether s is the process of that name and instance, as far as both tell an instance.
func (s Standby) is(replica, instance string) bool {
	return s.Replica == replica && (s.Instance == instance || s.Instance == "" || instance == "")
}

// standbys returns the highest priority among the followers of this process that have its mode, and whether there are
// no such followers.
func (c Config) standbys() (highest int32, none bool) {
	if c.Detector == nil {
		return 0, false // not known
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

// follows reports whether the replica whose latest term had that holder identity follows this process.
func (c Config) follows(holder string) bool {
	return slices.ContainsFunc(c.followers(), func(s Standby) bool { return s.Led == holder })
}
