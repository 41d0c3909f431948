package fairness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// scene has requests whose end the test decides.
type scene struct {
	t *testing.T
	l *Limiter
}

func newScene(t *testing.T, places, waiting int) *scene {
	return &scene{t, New(places, waiting)}
}

// attempt is a request of a scene.
type attempt struct {
	flow  Flow
	end   chan struct{}
	began chan struct{}
	done  chan error // what Enter returned, once the request is over
}

func (s *scene) ask(ctx context.Context, flow Flow, places int) *attempt {
	a := &attempt{flow: flow, end: make(chan struct{}), began: make(chan struct{}), done: make(chan error, 1)}
	go func() {
		leave, err := s.l.Enter(ctx, flow, places)
		if err == nil {
			close(a.began)
			<-a.end
			leave()
		}
		a.done <- err
	}()
	synctest.Wait()
	return a
}

func (s *scene) asks(n int, flow Flow) (all []*attempt) {
	for range n {
		all = append(all, s.ask(s.t.Context(), flow, 1))
	}
	return all
}

func (a *attempt) handled() bool {
	select {
	case <-a.began:
		return true
	default:
		return false
	}
}

func handled(all []*attempt) (n int) {
	for _, a := range all {
		if a.handled() {
			n++
		}
	}
	return n
}

// over ends requests and waits until all are over.
func over(all ...*attempt) {
	for _, a := range all {
		close(a.end)
	}
	for _, a := range all {
		<-a.done
	}
}

func TestATenantAloneGetsHalfOfThePlacesAndTwoGetAThirdEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 24, 1000)
		a := Flow{Tenant: "a"}
		users := func(n int, tenant string) (all []*attempt) {
			for i := range n {
				all = append(all, s.ask(s.t.Context(), Flow{Tenant: tenant, User: fmt.Sprint(i)}, 1))
			}
			return all
		}
		first := users(30, a.Tenant)
		if got := handled(first); got != 12 {
			t.Errorf("alone: %d of 24 places, want 12", got)
		}
		second := users(30, "b")
		if got := handled(second); got != 6 {
			t.Errorf("the second gets %d of 12 that are free, want 6", got)
		}
		var ended []*attempt
		for _, r := range first[:8] { // now the first one has less than its third, and both want more
			close(r.end)
			ended = append(ended, r)
		}
		synctest.Wait()
		if got, other := handled(first)-8, handled(second); got != 8 || other != 8 {
			t.Errorf("in the end they have %d and %d, want 8 of 24 each", got, other)
		}
		for _, r := range ended {
			<-r.done
		}
		over(append(first[8:], second...)...)
	})
}

func TestANewcomerIsHandledAtOnceWhateverOthersHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 16, 1000)
		var all []*attempt
		for tenant := range 3 {
			all = append(all, s.asks(100, Flow{Tenant: fmt.Sprint(tenant)})...)
		}
		newcomer := s.ask(s.t.Context(), Flow{Tenant: "newcomer"}, 1)
		if !newcomer.handled() {
			t.Error("three tenants whose requests never end keep a fourth one out")
		}
		over(append(all, newcomer)...)
	})
}

// When all places are taken, an administrator gets in, and the others do as places get free, those with the fewest
// first.
func TestAdministratorsGetInDuringAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 4, 1000)
		var tenants []*attempt
		for n := range 8 {
			tenants = append(tenants, s.ask(s.t.Context(), Flow{Tenant: fmt.Sprint(n)}, 1))
		}
		if got := handled(tenants); got != 4 {
			t.Fatalf("%d requests are handled, want all 4 places taken", got)
		}
		admin := s.asks(5, Flow{Tenant: "admin", Privileged: true})
		if got := handled(admin); got != 2 {
			t.Errorf("%d of the administrator's requests are handled, want half of 4", got)
		}
		over(append(tenants, admin...)...)
	})
}

func TestOneUserLeavesPlacesToTheOthersOfTheirTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 32, 1000)
		greedy := s.asks(400, Flow{Tenant: "a", User: "greedy"})
		if got := handled(greedy); got != 12 {
			t.Errorf("one user has %d places, want three quarters of the tenant's 16", got)
		}
		modest := s.asks(1, Flow{Tenant: "a", User: "modest"})
		if handled(modest) != 1 {
			t.Error("another user of the tenant waits")
		}
		over(append(greedy, modest...)...)
	})
}

// Everybody may make workspaces: many of them give nobody more than one.
func TestAPersonHasNoMoreInManyTenantsThanInOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 24, 1000)
		var eves []*attempt
		for n := range 12 {
			eves = append(eves, s.asks(4, Flow{Tenant: fmt.Sprint("eve", n), User: "eve", Person: "eve"})...)
		}
		if got := handled(eves); got != 12 {
			t.Errorf("in 12 tenants: %d of 24 places, want 12", got)
		}
		ann := s.asks(30, Flow{Tenant: "ann", User: "ann", Person: "ann"})
		if got := handled(ann); got != 6 {
			t.Errorf("another person gets %d of 12 that are free, want 6", got)
		}
		shared := s.asks(3, Flow{Tenant: "shared", User: "eve", Person: "eve"})
		bob := s.asks(3, Flow{Tenant: "shared", User: "bob", Person: "bob"})
		if got, other := handled(shared), handled(bob); got != 0 || other != 3 {
			t.Errorf("in a tenant of both: %d of who has enough elsewhere, and %d of who has none; want 0 and 3", got, other)
		}
		over(slices.Concat(eves, ann, shared, bob)...)
	})
}

func TestWhoHasTheFewestPlacesIsNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 2, 1000)
		first := s.asks(1, Flow{Tenant: "many"})
		second := s.asks(1, Flow{Tenant: "other"})
		flood := s.asks(50, Flow{Tenant: "many"})
		late := s.asks(1, Flow{Tenant: "late"})
		over(second...)
		synctest.Wait()
		if handled(flood) != 0 || handled(late) != 1 {
			t.Errorf("of the flood %d are handled, of the user who came last %d: want that one first", handled(flood), handled(late))
		}
		over(append(append(first, flood...), late...)...)
	})
}

func TestALargeRequestIsNotPassedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 16, 1000)
		small := append(s.asks(4, Flow{Tenant: "a", User: "small"}), s.asks(3, Flow{Tenant: "a", User: "other"})...)
		large := s.ask(s.t.Context(), Flow{Tenant: "a", User: "large"}, 1000) // takes a quarter: 4
		if large.handled() {
			t.Fatal("it fits at once")
		}
		behind := s.asks(10, Flow{Tenant: "a", User: "small"})
		over(small[:2]...)
		synctest.Wait()
		if !large.handled() || handled(behind) != 0 {
			t.Errorf("the large one is handled: %t, and %d that came later", large.handled(), handled(behind))
		}
		over(append(append(small[2:], behind...), large)...)
	})
}

func TestBeyondWhatMayWaitRequestsAreRefusedAndOthersStillWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 2, 40)
		flood := s.asks(100, Flow{Tenant: "a"})
		refused := 0
		for _, r := range flood {
			select {
			case err := <-r.done:
				if !errors.Is(err, ErrFull) {
					t.Errorf("refused with %v", err)
				}
				r.done <- err
				refused++
			default:
			}
		}
		if refused != 100-1-15 {
			t.Errorf("%d are refused: one is handled, and three quarters of half of 40 of one user wait", refused)
		}
		others := append(s.asks(2, Flow{Tenant: "b"}), s.asks(1, Flow{Tenant: "a", User: "another"})...)
		for _, r := range others {
			select {
			case err := <-r.done:
				t.Errorf("%v is refused because another waits: %v", r.flow, err)
				r.done <- err
			default:
			}
		}
		over(append(flood, others...)...)
	})
}

func TestWhoWaitsTooLongIsRefusedAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 2, 40)
		first := s.asks(1, Flow{Tenant: "a"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		second := s.ask(ctx, Flow{Tenant: "a"}, 1)
		if err := <-second.done; !errors.Is(err, ErrWaited) || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		over(first...)
		if len(s.l.tenants) != 0 || len(s.l.persons) != 0 || s.l.handled.taken != 0 || s.l.waiting.taken != 0 {
			t.Errorf("left behind: %v, %d places, %d waiting", s.l.tenants, s.l.handled.taken, s.l.waiting.taken)
		}
	})
}

// Whatever comes and goes: the limits hold, too, and in the end nothing is left.
func TestNoFloodLosesPlacesOrLetsAnybodyWaitBesideAFreeOne(t *testing.T) {
	type step struct {
		flow         Flow
		size, ending int // ending >= 0: instead, a request ends
	}
	draw := rapid.Custom(func(rt *rapid.T) step {
		flow := Flow{
			Tenant: rapid.SampledFrom([]string{"a", "b", "c", "admin"}).Draw(rt, "tenant"), User: rapid.SampledFrom([]string{"1", "2"}).Draw(rt, "user"),
		}
		if flow.Privileged = flow.Tenant == "admin"; !flow.Privileged {
			flow.Person = flow.User
		}
		return step{flow, rapid.IntRange(0, 6).Draw(rt, "size"), rapid.IntRange(-20, 20).Draw(rt, "ending")}
	})
	rapid.Check(t, func(rt *rapid.T) {
		places, waiting := rapid.IntRange(1, 20).Draw(rt, "places"), rapid.IntRange(1, 30).Draw(rt, "waiting")
		steps := rapid.SliceOfN(draw, 1, 60).Draw(rt, "steps")
		var fault string
		synctest.Test(t, func(t *testing.T) { // rapid's values cannot be drawn in it
			s := newScene(t, places, waiting)
			var open []*attempt
			for _, step := range steps {
				if n := step.ending; n >= 0 && n < len(open) && open[n].handled() {
					over(open[n])
					open = append(open[:n], open[n+1:]...)
				} else {
					open = append(open, s.ask(s.t.Context(), step.flow, step.size))
				}
				synctest.Wait()
				if fault = check(s.l); fault != "" {
					break
				}
			}
			over(open...)
			if len(s.l.tenants) != 0 || len(s.l.persons) != 0 || s.l.handled.taken != 0 || s.l.waiting.taken != 0 {
				fault += fmt.Sprintf("left behind: %v, %v, %d places, %d waiting", s.l.tenants, s.l.persons, s.l.handled.taken, s.l.waiting.taken)
			}
		})
		if fault != "" {
			rt.Fatal(fault)
		}
	})
}

// check returns what is wrong, or nothing.
func check(l *Limiter) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	places, waiting := 0, 0
	persons := map[*party]party{}
	for name, of := range l.tenants {
		places += of.handled
		waiting += of.waiting
		sum, isHeldUp := party{}, false
		for _, u := range of.users {
			person := persons[u.person]
			person.handled, person.waiting = person.handled+u.handled, person.waiting+u.waiting
			persons[u.person] = person
			isHeldUp = isHeldUp || u.waiting > 0 && u.person.handled == 0
			sum.handled += u.handled
			sum.waiting += u.waiting
			if u.queue.Len() != u.waiting {
				return fmt.Sprintf("%s: %d in the queue, %d are counted", name, u.queue.Len(), u.waiting)
			}
		}
		if sum.handled != of.handled || sum.waiting != of.waiting {
			return fmt.Sprintf("%s: its users have %+v, it has %+v", name, sum, of.party)
		}
		if of.handled == 0 && isHeldUp && l.handled.taken < l.handled.size {
			return fmt.Sprintf("%s has nothing and waits, though only %d of %d places are taken", name, l.handled.taken, l.handled.size)
		}
	}
	for counted, has := range persons {
		if counted.handled != has.handled || counted.waiting != has.waiting {
			return fmt.Sprintf("a person has %+v, and is counted as %+v", has, *counted)
		}
	}
	large := max(1, l.handled.size/4)
	if places != l.handled.taken || waiting != l.waiting.taken || waiting > l.waiting.size || places > l.handled.size+l.handled.size/2+large {
		return fmt.Sprintf("%d places and %d waiting are counted as %+v and %+v", places, waiting, l.handled, l.waiting)
	}
	return ""
}
