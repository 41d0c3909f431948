package history

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/regent-project/regent/pkg/election/fence"
)

// Event is a change of one key, as etcd tells it.
type Event struct {
	Revision int64
	Key      string
	Deleted  bool
	// At is when it was received here: not before it was committed.
	At time.Time
	// Term is the term that made the change; empty if none says so. Value is a register's.
	Term, Value string
	// Shows is what the Lease shows since; of Leases only, nil when it was deleted.
	Shows *fence.Token
	// Object is what a Workspace or a LogicalCluster is since, in JSON; nil when it was deleted.
	Object []byte
	// Sent is when the Lease says it was written, if it does.
	Sent time.Time
	// lease is whether the key is a Lease's.
	lease bool
}

// Recorder keeps what happens in an etcd, from now on until the test ends.
type Recorder struct {
	client *clientv3.Client
	prefix string

	mu     sync.Mutex
	events []Event
	fault  error
}

// Record begins to record the changes below a prefix, such as /registry.
func Record(t testing.TB, client *clientv3.Client, prefix string) *Recorder {
	t.Helper()
	r := &Recorder{client: client, prefix: prefix}
	resp, err := client.Get(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() { r.follow(ctx, resp.Header.Revision+1) })
	t.Cleanup(func() {
		cancel()
		following.Wait()
	})
	return r
}

// follow watches, again where it left off when etcd was away.
func (r *Recorder) follow(ctx context.Context, from int64) {
	for ctx.Err() == nil {
		watching, stop := context.WithCancel(ctx)
		for resp := range r.client.Watch(watching, r.prefix, clientv3.WithPrefix(), clientv3.WithRev(from)) {
			if resp.CompactRevision > 0 {
				r.failed(fmt.Errorf("the history from revision %d on was compacted", from))
				stop()
				return
			}
			now := time.Now()
			for _, e := range resp.Events {
				event, err := read(e, now)
				if err != nil {
					r.failed(err)
				}
				r.mu.Lock()
				r.events = append(r.events, event)
				r.mu.Unlock()
				from = e.Kv.ModRevision + 1
			}
		}
		stop()
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (r *Recorder) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = err
}

// read makes out what an event says.
func read(e *clientv3.Event, now time.Time) (Event, error) {
	event := Event{Revision: e.Kv.ModRevision, Key: string(e.Kv.Key), Deleted: e.Type == clientv3.EventTypeDelete, At: now}
	event.Term = ownerOf(event.Key)
	event.lease = strings.Contains(event.Key, "/coordination.k8s.io/leases/")
	if strings.Contains(event.Key, workspaceKeys) || strings.Contains(event.Key, logicalClusterKeys) {
		event.Object = e.Kv.Value
	}
	if event.Deleted || !event.lease && !strings.Contains(event.Key, "/core/configmaps/") {
		return event, nil
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(e.Kv.Value, nil, nil)
	if err != nil {
		return event, fmt.Errorf("cannot read %s at revision %d: %w", event.Key, event.Revision, err)
	}
	switch o := object.(type) {
	case *corev1.ConfigMap:
		if event.Term == "" {
			event.Term = o.Data[TermKey]
		}
		event.Value = o.Data[ValueKey]
	case *coordinationv1.Lease:
		shown := fence.OfLease(o)
		event.Shows = &shown
		if o.Spec.RenewTime != nil {
			event.Sent = o.Spec.RenewTime.Time
		}
	}
	return event, nil
}

// Events returns what has happened so far.
func (r *Recorder) Events() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events[:len(r.events):len(r.events)]
}

// NextTerm waits until a term leads under a Lease and has written that is not the given one.
func (r *Recorder) NextTerm(t testing.TB, lease, not string) string {
	t.Helper()
	const patience = time.Minute
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if term := writing(r.Events(), lease); term != "" && term != not {
			return term
		}
		if time.Now().After(deadline) {
			t.Fatalf("within %v no term writes that is not %s", patience, not)
		}
	}
}

// Finish returns the history up to now, which must be whole.
func (r *Recorder) Finish(t testing.TB) []Event {
	t.Helper()
	end := r.prefix + "/.end-of-history"
	resp, err := r.client.Put(t.Context(), end, "")
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		events := r.Events()
		if n := len(events); n > 0 && events[n-1].Revision >= resp.Header.Revision {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.fault != nil {
				t.Fatal(r.fault)
			}
			return events
		}
		if time.Now().After(deadline) {
			t.Fatal("the history does not come to its end")
		}
	}
}
