package fairness

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// reader is an answer whose client takes pieces when it is told to.
type reader struct {
	*httptest.ResponseRecorder
	takes chan struct{}
	cut   chan struct{}
}

func (r *reader) Write(p []byte) (int, error) {
	select {
	case <-r.takes:
		return len(p), nil
	case <-r.cut:
		return 0, errors.New("it is cut")
	}
}

// answering is a request with an answer of so many pieces, each of which costs the handler a second.
type answering struct {
	*reader
	ended chan error
}

func (s *scene) answers(flow Flow, size, pieces int) *answering {
	a := &answering{&reader{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}, make(chan error, 1)}
	go func() {
		WithSeat(func(context.Context) { close(a.cut) }, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			places := s.l.bounded(size)
			leave, err := s.l.Enter(req.Context(), flow, places)
			if err != nil {
				a.ended <- err
				return
			}
			at := seatFrom(req.Context())
			at.take(s.l, flow, places, size, leave)
			for range pieces {
				time.Sleep(time.Second)
				if _, err = w.Write([]byte("piece")); err != nil {
					break
				}
			}
			_, leave = at.end()
			leave()
			a.ended <- err
		})).ServeHTTP(a, httptest.NewRequest(http.MethodGet, "/", nil))
	}()
	return a
}

// after lets time pass.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (s *scene) isTaken(t *testing.T, when string, handled, reading int) {
	t.Helper()
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if s.l.handled.taken != handled || s.l.reading.taken != reading {
		t.Errorf("%s: %d places are taken, and %d of what is read slowly; want %d and %d", when, s.l.handled.taken, s.l.reading.taken, handled, reading)
	}
}

func TestAnAnswerThatIsReadSlowlyHoldsNoPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 24, 100)
		a := s.answers(Flow{Tenant: "eve", User: "eve", Person: "eve"}, 3, 3)
		after(time.Second)
		s.isTaken(t, "its client reads nothing yet", 3, 0)
		after(readerPatience)
		s.isTaken(t, "its client is slow", 0, 3)
		a.takes <- struct{}{}
		synctest.Wait()
		s.isTaken(t, "it works again", 3, 3)
		after(time.Second + slowPatience)
		s.isTaken(t, "it waits again, for a client that is known as slow", 0, 3)
		a.takes <- struct{}{}
		after(time.Second)
		a.takes <- struct{}{}
		if err := <-a.ended; err != nil {
			t.Error(err)
		}
		s.isTaken(t, "it has ended", 0, 0)
		if len(s.l.tenants)+len(s.l.persons) > 0 {
			t.Errorf("%v and %v are left", s.l.tenants, s.l.persons)
		}
	})
}

func TestAnAnswerThatIsReadFastKeepsItsPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 24, 100)
		a := s.answers(Flow{Tenant: "ann"}, 3, 4)
		for range 4 {
			after(time.Second + readerPatience/5)
			s.isTaken(t, "its client reads", 3, 0)
			a.takes <- struct{}{}
		}
		if err := <-a.ended; err != nil {
			t.Error(err)
		}
		s.isTaken(t, "it has ended", 0, 0)
	})
}

// Slow readers take no CPU, but memory: there is a bound for a person, in however many tenants, and it leaves room for
// others.
func TestSlowReadersShareWhatIsKeptForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 24, 100)
		const large = largestReading
		read := func(tenant, person string) *answering {
			a := s.answers(Flow{Tenant: tenant, User: person, Person: person}, large, 2)
			after(time.Second + readerPatience)
			return a
		}
		var kept []*answering
		for _, tenant := range []string{"eve1", "eve2", "eve3", "eve4"} {
			kept = append(kept, read(tenant, "eve"))
		}
		s.isTaken(t, "half of the room is one person's", 0, 4*large)
		if err := <-read("eve5", "eve").ended; err == nil {
			t.Errorf("one more of eve's is kept")
		}
		kept = append(kept, read("ann", "ann"))
		s.isTaken(t, "another person's answer is kept", 0, 5*large)
		for _, a := range kept {
			a.takes <- struct{}{}
		}
		synctest.Wait()
		for _, a := range kept {
			a.takes <- struct{}{}
			if err := <-a.ended; err != nil {
				t.Error(err)
			}
		}
		s.isTaken(t, "all have ended", 0, 0)
		if len(s.l.tenants)+len(s.l.persons) > 0 {
			t.Errorf("%v and %v are left", s.l.tenants, s.l.persons)
		}
	})
}

// Whoever wants to go on waits like everybody else, and is cut off like one who waits for too long.
func TestASlowReaderWaitsForItsPlacesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 1, 1)
		flow := Flow{Tenant: "eve", User: "eve", Person: "eve"}
		a := s.answers(flow, 1, 2)
		after(time.Second + readerPatience)
		holder, waiter := s.ask(t.Context(), flow, 1), s.ask(t.Context(), flow, 1)
		if !holder.handled() || waiter.handled() {
			t.Error("another one has not got the place")
		}
		a.takes <- struct{}{}
		if err := <-a.ended; !errors.Is(err, ErrFull) {
			t.Errorf("it has ended with %v", err)
		}
		over(holder, waiter)
		if len(s.l.tenants)+len(s.l.persons) > 0 {
			t.Errorf("%v and %v are left", s.l.tenants, s.l.persons)
		}
	})
}

// One that drips holds its places for no more than two seconds.
func TestAClientThatDripsHoldsNoPlacesInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 24, 100)
		a := s.answers(Flow{Tenant: "eve", User: "eve", Person: "eve"}, 3, 200)
		for range 150 { // each time it reads just before the places are given back
			after(time.Second + slowPatience - time.Millisecond)
			a.takes <- struct{}{}
		}
		after(time.Second)
		s.isTaken(t, "its client lets it wait again", 0, 3)
		for range 49 {
			a.takes <- struct{}{}
			after(time.Second)
		}
		a.takes <- struct{}{}
		if err := <-a.ended; err != nil {
			t.Error(err)
		}
	})
}

// An answer of whatever size leaves room for those of others, and whoever has little there is not cut off because
// others have much.
func TestALargeSlowAnswerCutsOffNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 100, 100)
		var all []*answering
		read := func(who string, size int) *answering {
			a := s.answers(Flow{Tenant: who, User: who, Person: who}, size, 1)
			after(time.Second + readerPatience)
			all = append(all, a)
			return a
		}
		read("huge", 1<<20)
		s.isTaken(t, "it takes a part of the room", 0, largestReading)
		for n := range 9 { // of which two keep their places
			read(fmt.Sprint("other", n), largestReading)
		}
		read("small", 1)
		read("small", 1)
		for _, a := range all {
			a.takes <- struct{}{}
		}
		for _, a := range all {
			if err := <-a.ended; err != nil {
				t.Errorf("it was cut: %v", err)
			}
		}
		s.isTaken(t, "all have ended", 0, 0)
		if len(s.l.tenants)+len(s.l.persons) > 0 {
			t.Errorf("%v and %v are left", s.l.tenants, s.l.persons)
		}
	})
}
