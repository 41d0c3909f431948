package electiontest

import (
	"sync"
	"time"
)

// Request is a kind of request.
type Request string

const (
	List   Request = "list"
	Watch  Request = "watch"
	Create Request = "create"
	Update Request = "update"
	Delete Request = "delete"
)

// Fault is what happens to one request.
type Fault struct {
	// Delay holds the request back before it reaches the store. If the caller gives up meanwhile, a delayed write
	// is committed all the same.
	Delay time.Duration
	// Err is returned instead of the store's answer. The request does not reach the store.
	Err error
	// AnswerDelay holds the answer back. The request reaches the store at once. If the caller gives up meanwhile,
	// it does not learn what became of the request.
	AnswerDelay time.Duration
	// LoseReply drops the answer. The request reaches the store, and the caller waits until its context ends.
	LoseReply bool
	// Hang drops the request. The caller waits until its context ends.
	Hang bool
}

// Faults are what happens to the requests of a client. The zero Faults are none.
type Faults struct {
	mu     sync.Mutex
	counts map[Request]int
	queued map[Request][]Fault
	always map[Request]Fault
}

// Next queues faults for the next requests of a kind, one fault for each request.
func (f *Faults) Next(r Request, faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.queued == nil {
		f.queued = map[Request][]Fault{}
	}
	f.queued[r] = append(f.queued[r], faults...)
}

// Always sets the fault of requests of these kinds for which no fault is queued. Without kinds it applies to all. The
// zero Fault ends it.
func (f *Faults) Always(fault Fault, of ...Request) {
	if len(of) == 0 {
		of = Requests
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.always == nil {
		f.always = map[Request]Fault{}
	}
	for _, r := range of {
		f.always[r] = fault
	}
}

// Count returns how many requests of a kind there were, including failed ones.
func (f *Faults) Count(r Request) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[r]
}

// fault counts a request and returns its fault.
func (f *Faults) fault(r Request) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts == nil {
		f.counts = map[Request]int{}
	}
	f.counts[r]++
	if queued := f.queued[r]; len(queued) > 0 {
		f.queued[r] = queued[1:]
		return queued[0]
	}
	return f.always[r]
}
