package fairness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// readingPlaces are the places of answers that wait for slow readers, on each replica. Each stands for 100 kB
	// that are kept in memory.
	readingPlaces = 2560
	// largestReading is how much of it one answer takes at the most, however large it is.
	largestReading = readingPlaces / 8
	// readerPatience is how long the client of a request may keep it from going on, in all, before it counts as
	// slow. A wait of less than blockedFor is none.
	readerPatience = 250 * time.Millisecond
	blockedFor     = time.Millisecond
	// slowPatience is how long a slow client may keep a request waiting at a time before the places are given back,
	// until all such waits together have lasted for longer than mostWaited: then they are given back before each
	// wait.
	slowPatience = 20 * time.Millisecond
	mostWaited   = 2 * time.Second
	// returnPatience is how long a request waits for its places when its client reads on. Nothing else ends that
	// wait: the writer that waits holds what ends requests.
	returnPatience = 15 * time.Second
)

// ErrSlow says that an answer is not kept any longer for a client that reads it slowly.
var ErrSlow = errors.New("the answer is read slowly, and too many answers for the same tenant or user are")

// seat is where a request has its places. It gives them back while the client keeps the request waiting that reads its
// answer: then the request takes no CPU. What it has in memory counts among the answers that are read slowly, until its
// end. A client that has too much there is not waited for.
//
// The handler works on one goroutine, and a timer calls away on another.
type seat struct {
	// cut ends the answer: a write that is under way fails.
	cut func()

	mu      sync.Mutex
	limiter *Limiter // nil until the request has its places, and when it needs none any more
	flow    Flow
	places  int // that it takes while it works
	size    int // of its answer, in places
	leave   func()
	since   time.Time     // when it has taken its places
	total   time.Duration // for how long it has had them before that
	waits   bool          // for its client
	reading func()        // gives back what its answer takes among those that are read slowly
	left    time.Duration // of readerPatience; less than 0: beyond it
	err     error         // why it has ended
}

func newSeat(cut func()) *seat { return &seat{cut: cut, left: readerPatience} }

// weigh says that the request has an answer of so many bytes in memory, at least.
func (s *seat) weigh(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size = max(s.size, bytes/bytesPerPlace)
}

type seatKey struct{}

// seatFrom returns the seat of the request in ctx. It never returns nil.
func seatFrom(ctx context.Context) *seat {
	if s, ok := ctx.Value(seatKey{}).(*seat); ok {
		return s
	}
	return newSeat(func() {})
}

// take says that the request has its places.
func (s *seat) take(l *Limiter, flow Flow, places, size int, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limiter, s.flow, s.places, s.size, s.leave, s.since = l, flow, places, size, leave, time.Now()
}

// end says that the request needs no places any more. It returns how long it had them, and what gives them back. That
// may be called later.
func (s *seat) end() (total time.Duration, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if leave = func() {}; s.leave != nil {
		leave, s.total = s.leave, s.total+time.Since(s.since)
	}
	if s.reading != nil {
		s.reading()
	}
	s.limiter, s.leave, s.reading = nil, nil, nil
	return s.total, leave
}

// wait says that the request begins to wait for its client, until back is called. It returns how long the client may
// keep it waiting before its places are given back, and whether it has places at all.
func (s *seat) wait() (patience time.Duration, placed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = s.limiter != nil
	switch {
	case s.left > 0:
		return s.left, s.waits
	case s.left > -mostWaited:
		return slowPatience, s.waits
	}
	return 0, s.waits
}

// away gives the places back until back is called. An answer for which there is no room is cut off.
func (s *seat) away() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limiter == nil || s.leave == nil || !s.waits {
		return
	}
	if s.reading == nil {
		leave, share := s.limiter.read(s.flow, s.size)
		if leave == nil && share < largestReading {
			return // it keeps its places: others have taken the room
		}
		if leave == nil {
			s.err = ErrSlow
			slowAnswersCut.Inc()
			s.cut()
			return
		}
		s.reading = leave
	}
	s.leave()
	s.leave, s.total = nil, s.total+time.Since(s.since)
}

// back takes the places again, if they were given back, after the client has kept the request waiting for so long.
func (s *seat) back(ctx context.Context, waited time.Duration) error {
	s.mu.Lock()
	if s.waits = false; waited >= blockedFor {
		s.left -= waited
	}
	limiter, err := s.limiter, s.err
	if limiter == nil || s.leave != nil || err != nil {
		s.mu.Unlock()
		return err
	}
	s.mu.Unlock()
	waiting, cancel := context.WithTimeout(ctx, returnPatience)
	defer cancel()
	leave, err := limiter.Enter(waiting, s.flow, s.places)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.limiter == nil: // it needs none any more
		if err == nil {
			leave()
		}
	case err != nil:
		s.err = fmt.Errorf("the rest of an answer that is read slowly: %w", err)
		s.cut()
		return s.err
	default:
		s.leave, s.since = leave, time.Now()
	}
	return nil
}

// read counts an answer among those that are read slowly until leave is called. It returns nil if its tenant or its
// user has as much there as is free, and how much the one of both has that has more. Privileged tenants are not
// refused.
func (l *Limiter) read(flow Flow, size int) (leave func(), share int) {
	size = min(max(1, size), largestReading)
	l.mu.Lock()
	defer l.mu.Unlock()
	of, user := l.get(flow)
	share = max(of.reading, user.person.reading)
	if !flow.Privileged && (!l.reading.admits(of.reading, size) || !l.reading.admits(user.person.reading, size)) {
		l.drop(flow, of, user)
		return nil, share
	}
	count := func(n int) {
		of.reading += n
		user.reading += n
		user.person.reading += n
		l.reading.taken += n
		slowAnswers.Add(float64(n))
	}
	count(size)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		count(-size)
		l.drop(flow, of, user)
	}, share
}
