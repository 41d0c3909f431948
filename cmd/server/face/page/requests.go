package page

import "sync"

// requests are those that are being answered. http.Server does not wait for them once it has been closed.
type requests struct {
	mu       sync.Mutex
	isClosed bool
	open     sync.WaitGroup
}

// begin reports whether a request may begin. If so, it must call finish.
func (r *requests) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.isClosed {
		r.open.Add(1)
	}
	return !r.isClosed
}

func (r *requests) finish() { r.open.Done() }

// end lets no request begin any more, and waits for those that have.
func (r *requests) end() {
	r.mu.Lock()
	r.isClosed = true
	r.mu.Unlock()
	r.open.Wait()
}
