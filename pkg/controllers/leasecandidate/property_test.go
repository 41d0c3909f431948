package leasecandidate

import (
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

// From any state that faults may leave, once there are no more of them, the best candidate that lives holds the lease,
// or one that is as good, and goes on holding it, in one term. No election names a holder while another holds the
// lease, and no epoch comes twice.
func TestInTheEndTheBestThatLivesIsElected(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, now: now, candidates: map[string]*coordinationv1beta1.LeaseCandidate{}}
		for range rapid.IntRange(1, 60).Draw(t, "faults") {
			w.fault()
			w.pass(rapid.Int64Range(0, int64(8*time.Second)).Draw(t, "until the next"))
		}
		w.pass(int64(time.Minute))
		best := w.best()
		if len(best) == 0 {
			return
		}
		holder, epoch := holderOf(w.lease), w.epoch
		for range 30 {
			w.pass(int64(time.Second))
			if now := holderOf(w.lease); now != holder || !slices.Contains(best, now) {
				t.Fatalf("%q holds the lease, and did %q; the best that live are %q", now, holder, best)
			}
		}
		if w.epoch != epoch {
			t.Fatalf("there were %d elections with nothing to elect", w.epoch-epoch)
		}
	})
}

// step is how often a client does anything.
const step = 100 * time.Millisecond

// world is a lease, its candidates, their processes, and a controller that is restarted now and then.
type world struct {
	t          *rapid.T
	now        time.Time
	lease      *coordinationv1.Lease
	candidates map[string]*coordinationv1beta1.LeaseCandidate
	clients    []*client
	made       int

	memory memory
	due    time.Time
	dirty  bool
	epoch  int32     // the highest ever
	until  time.Time // when the lease expires that is held by a process that lives
}

// client is a process with client-go's candidate and elector.
type client struct {
	name, emulation, binary string
	skew                    time.Duration
	alive                   bool
	releases                bool // when it is asked to make way; else it only renews no more
	leading                 bool
	renewed                 time.Time
}

func (w *world) fault() {
	c := func() *client {
		if len(w.clients) == 0 {
			return &client{}
		}
		return w.clients[rapid.IntRange(0, len(w.clients)-1).Draw(w.t, "client")]
	}
	switch rapid.IntRange(0, 8).Draw(w.t, "fault") {
	case 0, 1, 2: // a process starts
		w.made++
		minor := rapid.IntRange(28, 31).Draw(w.t, "emulation")
		w.clients = append(w.clients, &client{
			name:      fmt.Sprintf("c%d", w.made),
			emulation: fmt.Sprintf("1.%d.0", minor),
			binary:    fmt.Sprintf("1.%d.0", rapid.IntRange(minor, 32).Draw(w.t, "binary")),
			skew:      time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Hour)).Draw(w.t, "skew")),
			releases:  rapid.Bool().Draw(w.t, "releases"),
			alive:     true,
		})
	case 3, 4: // one is killed
		c().alive, c().leading = false, false
	case 5: // one comes back, as it was
		c().alive = true
	case 6: // an operator deletes a candidate
		delete(w.candidates, c().name)
		w.dirty = true
	case 7: // or the lease
		w.lease, w.dirty = nil, true
	case 8: // the controller restarts
		w.memory, w.dirty = memory{old: map[types.UID]bool{}}, true
		for _, c := range w.candidates {
			w.memory.old[c.UID] = true
		}
	}
}

// pass lets time pass.
func (w *world) pass(nanoseconds int64) {
	for end := w.now.Add(time.Duration(nanoseconds)); w.now.Before(end); w.now = w.now.Add(step) {
		for _, c := range w.clients {
			if c.alive {
				w.act(c)
			}
		}
		if w.dirty || !w.due.IsZero() && !w.now.Before(w.due) {
			w.control()
		}
	}
}

// act is what a stock client does when it looks.
func (w *world) act(c *client) {
	own := &metav1.MicroTime{Time: w.now.Add(c.skew)}
	switch obj := w.candidates[c.name]; {
	case obj == nil:
		w.made++
		w.candidates[c.name] = &coordinationv1beta1.LeaseCandidate{
			ObjectMeta: metav1.ObjectMeta{Name: c.name, UID: types.UID(fmt.Sprint(w.made)), CreationTimestamp: metav1.NewTime(w.now.Truncate(time.Second))},
			Spec: coordinationv1beta1.LeaseCandidateSpec{
				LeaseName: "work", EmulationVersion: c.emulation, BinaryVersion: c.binary,
				Strategy: coordinationv1.OldestEmulationVersion, RenewTime: own,
			},
		}
		w.dirty = true
	case owesAnswer(obj):
		obj = obj.DeepCopy()
		obj.Spec.RenewTime = own
		w.candidates[c.name], w.dirty = obj, true
	}
	if holderOf(w.lease) != c.name {
		c.leading = false
		return
	}
	if c.leading && w.now.Sub(c.renewed) < 2*time.Second {
		return
	}
	lease := w.lease.DeepCopy()
	if ptr.Deref(lease.Spec.PreferredHolder, "") != "" {
		if !c.releases {
			return
		}
		lease.Spec.HolderIdentity = ptr.To("")
		c.leading = false
	} else {
		c.leading, c.renewed = true, w.now
		lease.Spec.LeaseDurationSeconds = ptr.To[int32](15)
		w.until = w.now.Add(15 * time.Second)
	}
	lease.Spec.RenewTime = own
	w.lease, w.dirty = lease, true
}

// control is one round of the controller.
func (w *world) control() {
	var candidates []*coordinationv1beta1.LeaseCandidate
	for _, c := range w.candidates {
		candidates = append(candidates, c)
	}
	d := decide(w.memory.look(w.lease, candidates, w.now), w.now)
	w.due, w.dirty = d.due, false
	for _, c := range d.expired {
		delete(w.candidates, c.Name)
		w.dirty = true
	}
	for _, c := range d.ask {
		if owesAnswer(c.LeaseCandidate) {
			w.t.Fatalf("candidate %s is asked although it owes an answer", c.Name)
		}
		w.candidates[c.Name], w.dirty = question(c.LeaseCandidate), true
	}
	if d.conflict != nil {
		w.t.Fatal(d.conflict)
	}
	lease := d.write(w.lease, w.memory.epoch, w.now)
	if lease == nil {
		return
	}
	if d.elect != "" {
		if holder := holderOf(w.lease); holder != "" && w.now.Before(w.until) {
			if i := slices.IndexFunc(w.clients, func(c *client) bool { return c.name == holder }); i >= 0 && w.clients[i].leading {
				w.t.Fatalf("%s is elected while %s leads, until %v from now", d.elect, holder, w.until.Sub(w.now))
			}
		}
		if epoch := ptr.Deref(lease.Spec.LeaseTransitions, 0); epoch <= w.memory.epoch {
			w.t.Fatalf("epoch %d after %d", epoch, w.memory.epoch)
		}
	}
	if w.lease == nil {
		w.made++
		lease.UID = types.UID(fmt.Sprint(w.made))
	}
	w.lease, w.dirty, w.epoch = lease, true, max(w.epoch, ptr.Deref(lease.Spec.LeaseTransitions, 0))
}

// best are the names of those that live of which one should lead in the end. Its versions are texts of equal length.
func (w *world) best() (names []string) {
	var least string
	for _, c := range w.clients {
		obj := w.candidates[c.name]
		if !c.alive || obj == nil {
			continue
		}
		switch key := fmt.Sprint(c.emulation, c.binary, obj.CreationTimestamp.Unix()); {
		case least == "" || key < least:
			least, names = key, []string{c.name}
		case key == least:
			names = append(names, c.name)
		}
	}
	return names
}
