package controllers

// Reporter is a Controller that tells how its work goes. Those that do are found out when they hang: one that holds
// work and gets nothing done for its stall deadline is stalled, and after twice that it has failed.
type Reporter interface {
	// Report is called from time to time while Run runs, from another goroutine. It must not block.
	Report() Health
}

// Health is a controller's report.
type Health struct {
	// Pending is how many items the controller holds that are due: queued, or being worked on. What waits for its time,
	// such as the next attempt at an item that failed, is not due.
	Pending int
	// Returned counts the items that it has worked on, with or without success. It never falls.
	Returned uint64
}
