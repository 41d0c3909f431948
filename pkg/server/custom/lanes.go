package custom

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
)

const (
	// callTime is how long a conversion webhook may take to answer. Kubernetes waits three times as long.
	callTime = 10 * time.Second
	// pause is how long a webhook that did not answer in that time is not called again. Requests that need it fail
	// at once meanwhile: so they do not hold places that other requests wait for.
	pause = 5 * time.Second
	// laneWidth is how many calls of a lane are under way at a time.
	laneWidth = 16
)

// lane is what waits for its turn together: the conversions of one content in one logical cluster. A cluster that makes
// a webhook hang does not keep others from using it that define the same.
type lane struct {
	cluster logicalcluster.Name
	content contentHash
}

// lanes bound the calls of conversion webhooks.
type lanes struct {
	pause time.Duration // the constant, except in tests

	mu  sync.Mutex
	all map[lane]*turns
}

// turns are the calls of a lane.
type turns struct {
	places chan struct{}
	users  int
	resume time.Time // when the webhook is called again
}

// errPausing says that a webhook is not called because it did not answer.
var errPausing = errors.New("the webhook did not answer in time a moment ago")

// enter returns when a call may begin. leave must be called when it is over; hung says that there was no answer in
// time.
func (l *lanes) enter(ctx context.Context, of lane) (leave func(hung bool), err error) {
	t, err := l.join(of)
	if err != nil {
		return nil, err
	}
	select {
	case t.places <- struct{}{}:
	case <-ctx.Done():
		l.leave(of, t, false)
		return nil, ctx.Err()
	}
	l.mu.Lock()
	err = t.pausing()
	l.mu.Unlock()
	if err != nil { // since this call began to wait
		<-t.places
		l.leave(of, t, false)
		return nil, err
	}
	return func(hung bool) {
		l.leave(of, t, hung)
		<-t.places
	}, nil
}

func (l *lanes) join(of lane) (*turns, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.all[of]
	if t == nil {
		l.forget()
		t = &turns{places: make(chan struct{}, laneWidth)}
		l.all[of] = t
	}
	if err := t.pausing(); err != nil {
		return nil, err
	}
	t.users++
	return t, nil
}

func (l *lanes) leave(of lane, t *turns, hung bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.users--; hung {
		t.resume = time.Now().Add(l.pause)
	}
	if t.users == 0 && t.pausing() == nil {
		delete(l.all, of)
	}
}

// forget removes lanes that nobody is in any more. The caller holds mu.
func (l *lanes) forget() {
	if l.all == nil {
		l.all = map[lane]*turns{}
	}
	for of, t := range l.all { // few: those of which a call is under way, and those that pause
		if t.users == 0 && t.pausing() == nil {
			delete(l.all, of)
		}
	}
}

func (t *turns) pausing() error {
	if left := time.Until(t.resume); left > 0 {
		return fmt.Errorf("%w, and is asked again in %v", errPausing, left.Round(time.Millisecond))
	}
	return nil
}
