package controllers

// Reporter is a Controller that reports the progress of its work. The supervisor can then find out that it hangs: a controller
// that holds work and finishes none of it for its stall deadline is stalled, and after twice that time it has failed.
type Reporter interface {
	// Report is called from time to time while Run runs, on another goroutine. It must not block.
	Report() Health
}

// Health is a controller's report.
type Health struct {
	// Pending is the number of items that are due: queued or being worked on. Items that wait for their time, such as the next
	// attempt after a failure, are not due.
	Pending int
	// Returned counts the items that were worked on, with or without success. It never falls.
	Returned uint64
}
