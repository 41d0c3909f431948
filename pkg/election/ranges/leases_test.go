package ranges

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// shared runs the shared watch of a store, and returns a client on it.
func shared(t *testing.T, store *electiontest.Store) (*leases, *electiontest.Client) {
	t.Helper()
	client := store.Client()
	l := newLeases(client, 3*time.Second, retry)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.run(ctx, "group")
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return l, client
}

// last returns the holder that the latest event shows which waits in a watch, and the type of that event.
func last(events watch.Interface) (holder string, of watch.EventType) {
	synctest.Wait()
	for {
		select {
		case event, open := <-events.ResultChan():
			if !open {
				return "", "ended"
			}
			holder, of = ptr.Deref(event.Object.(*coordinationv1.Lease).Spec.HolderIdentity, ""), event.Type
		default:
			return holder, of
		}
	}
}

// Whatever happens to a Lease after the revision from which it is watched is told: also what happened before the watch
// began, and while the shared watch was broken.
func TestAWatchOfOneLeaseTellsItsLatestState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore("a")
		l, client := shared(t, store)
		store.Take("first", time.Hour)
		synctest.Wait()
		list, err := l.List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=a"})
		if err != nil {
			t.Fatal(err)
		}
		store.Take("second", time.Hour)
		synctest.Wait() // the shared watch has told it to nobody
		events, err := l.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=a", ResourceVersion: list.ResourceVersion})
		if err != nil {
			t.Fatal(err)
		}
		if holder, of := last(events); holder != "second" {
			t.Errorf("what happened before the watch began: %s %q", of, holder)
		}
		store.Of("b").Take("another", time.Hour)
		if holder, of := last(events); of != "" {
			t.Errorf("it tells of another Lease: %s %q", of, holder)
		}
		for name, change := range map[string]func(){"changed": func() { store.Take("third", time.Hour) }, "deleted": store.Delete} {
			client.Always(electiontest.Fault{Err: context.DeadlineExceeded})
			client.DropWatches()
			time.Sleep(retry)
			change()
			client.Always(electiontest.Fault{})
			time.Sleep(2 * retry)
			switch holder, of := last(events); {
			case name == "deleted" && of != watch.Deleted, name == "changed" && holder != "third":
				t.Errorf("%s while the shared watch was broken: %s %q", name, of, holder)
			}
			store.Take("again", time.Hour)
			synctest.Wait()
			last(events)
		}
		events.Stop()
		if _, of := last(events); of != "ended" {
			t.Errorf("a watch that was stopped is %s", of)
		}
	})
}

// One watch that nobody reads ends, and holds up no other.
func TestAWatchThatNobodyReadsHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore("a")
		l, _ := shared(t, store)
		store.Take("first", time.Hour)
		var events []watch.Interface
		for range 2 {
			w, err := l.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=a"})
			if err != nil {
				t.Fatal(err)
			}
			events = append(events, w)
		}
		for range mostPending + 1 {
			store.Renew()
			synctest.Wait()
			if _, of := last(events[0]); of != watch.Modified {
				t.Fatalf("the one that is read gets %s", of)
			}
		}
		n := 0
		for range events[1].ResultChan() {
			n++
		}
		if n > mostPending {
			t.Errorf("the other had %d events", n)
		}
		events[0].Stop()
	})
}

// A process of another election in the same namespace is no member, and neither is one whose presence has expired.
func TestTheRosterHasThoseWhoArePresentForTheSameElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := electiontest.NewStore("group")
		a := join(t, store, "a", 2)
		other := join(t, store, "other", 2, func(cfg *election.Config) { cfg.Name = "another" })
		time.Sleep(3 * lasts)
		if got := sizes(t, a); got[0] != 2 {
			t.Errorf("it leads %d of its 2 ranges beside another election", got[0])
		}
		a.mu.Lock()
		a.Group.mu.Lock()
		if n := len(a.members); n != 1 {
			t.Errorf("%d members", n)
		}
		a.Group.mu.Unlock()
		a.mu.Unlock()
		b := join(t, store, "b", 2)
		time.Sleep(3 * lasts)
		b.client.Always(electiontest.Fault{Hang: true})
		time.Sleep(2 * lasts)
		if to, _ := a.now.assignedTo(0); to != "a_1" {
			t.Errorf("range 0 is assigned to %s", to)
		}
		if to, _ := a.now.assignedTo(1); to != "a_1" {
			t.Errorf("range 1 is assigned to %s", to)
		}
		b.client.Always(electiontest.Fault{})
		for _, p := range []*process{a, b, other} {
			p.stop()
		}
	})
}
