package control

// Reporter is a Controller that reports the progress of its work. The supervisor can then find out that it hangs: a
// controller that holds work and finishes none of it for its stall deadline is stalled, and after twice that time it
// has failed.
type Reporter interface {
	// Report is called from time to time while Run runs, on another goroutine. It must not block.
	Report() Health
}

// Health is a controller's report.
type Health struct {
	// Pending is the number of items that are due: queued or being worked on. Items that wait for their time, such
	// as the next attempt after a failure, are not due.
	Pending int
	// Returned counts the items that were worked on, with or without success. It never falls.
	Returned uint64
	// Only is the group to which all items belong that are due, apart from Sweep's: a tenant, for example. Empty:
	// there are several groups, or items are not told apart. While one group alone has work, a controller that
	// finishes none of it is held by that group, and not stalled: it would work for others.
	Only string
	// Sweep is about the part of these items that the controller has found in its pass over all objects. The
	// supervisor judges it apart from the rest: neither may stand still behind the other.
	Sweep Sweep
}

// Sweep is the report of the pass over all objects with which a controller begins.
type Sweep struct {
	// Running says that the pass has not ended: objects are left to look at, or items to work on.
	Running bool
	// Pending and Returned are the parts of Health's. Only is that of these items.
	Pending  int
	Returned uint64
	Only     string
}
