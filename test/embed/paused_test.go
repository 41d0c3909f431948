package embed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/regent-project/regent/pkg/election/fence"
)

// A leader's writes are under way, all of them checked, when everything stops. Another one leads before it goes on.
// etcd's own history says what became of them.
func TestALeaderThatWakesUpInTheMiddleOfItsWritesChangesNothing(t *testing.T) {
	const rounds = 8
	w := newGatedWorld(t)
	held := 0
	for round := range rounds {
		mine := w.take(fmt.Sprintf("leader-%d", round))
		woken := w.pause(t, mine, fmt.Sprintf("r%d", round))
		for _, err := range woken.errs {
			if !fence.IsFenced(err) {
				t.Errorf("round %d: a writer of the old term ends with %v", round, err)
			}
		}
		if len(woken.stale) > 0 {
			t.Errorf("round %d: %d stale writes: %v", round, len(woken.stale), woken.stale)
		}
		held += len(woken.errs)
		created := flunder(fmt.Sprintf("r%d", round), "")
		if _, err := w.as(woken.next).WardleV1alpha1().Flunders("default").Create(t.Context(), created, metav1.CreateOptions{}); err != nil {
			t.Errorf("round %d: the new leader: %v", round, err)
		}
	}
	t.Logf("%d requests were under way in %d rounds: 0 stale writes", held, rounds)
	if unfenced := w.pause(t, fence.Token{}, "unfenced"); len(unfenced.stale) == 0 {
		t.Error("without tokens no write was stale: the test sees nothing")
	}
}

// awakening is what became of a leader that was paused.
type awakening struct {
	errs  []error     // what its writers ended with
	stale []string    // what they have changed in the term of the next leader
	next  fence.Token // that leader's
}

// pause has 16 writers write, stops them in the middle, has another leader take the Lease, and wakes them.
func (w *world) pause(t *testing.T, token fence.Token, name string) (out awakening) {
	t.Helper()
	const writers = 16
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var made, underWay atomic.Int32
	var working sync.WaitGroup
	out.errs = make([]error, writers)
	for n := range writers {
		working.Go(func() { out.errs[n] = w.work(ctx, token, fmt.Sprintf("%s-w%d", name, n), &made, &underWay) })
	}
	eventually(t, "writes are made", func() bool { return made.Load() > 5*writers })
	w.gate.shut()
	eventually(t, "all writers wait for etcd", func() bool { return w.gate.waiting.Load() > 0 && underWay.Load() == writers })
	eventually(t, "nothing moves", still(&made))
	out.next = w.take("another")
	at, before := w.revision(t), made.Load()
	w.gate.release()
	if token.IsZero() { // they would never end
		eventually(t, "unfenced writes go on", func() bool { return made.Load() > before+writers })
		cancel()
	}
	working.Wait()
	out.stale = w.since(t, at)
	return out
}

// work writes all kinds of writes under a token until one fails.
func (w *world) work(ctx context.Context, token fence.Token, name string, made, underWay *atomic.Int32) error {
	client := w.as(token).WardleV1alpha1().Flunders("default")
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"holder":%q}}}`, token.Holder)
	steps := []func() error{
		func() error {
			f := flunder(name, "")
			f.Labels = map[string]string{"holder": token.Holder}
			_, err := client.Create(ctx, f, metav1.CreateOptions{})
			return err
		},
		func() error {
			f, err := client.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			f.Labels = map[string]string{"holder": token.Holder, "at": fmt.Sprint(time.Now().UnixNano())}
			_, err = client.Update(ctx, f, metav1.UpdateOptions{})
			return err
		},
		func() error {
			_, err := client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		},
		func() error { return client.Delete(ctx, name, metav1.DeleteOptions{}) },
	}
	for n := 0; ; n++ {
		underWay.Add(1)
		err := steps[n%len(steps)]()
		underWay.Add(-1)
		if err != nil {
			return err
		}
		made.Add(1)
	}
}

// revision is etcd's.
func (w *world) revision(t *testing.T) int64 {
	t.Helper()
	got, err := w.etcd.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	return got.Header.Revision
}

// since returns the changes of objects since a revision : all that old leaders have made, because new ones wait.
func (w *world) since(t *testing.T, revision int64) (changes []string) {
	t.Helper()
	last := w.revision(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := w.etcd.Put(ctx, prefix+"/wardle.example.com/end", ""); err != nil { // the watch ends with it
		t.Fatal(err)
	}
	for heard := range w.etcd.Watch(ctx, prefix+"/wardle.example.com/", clientv3.WithPrefix(), clientv3.WithRev(revision+1)) {
		if err := heard.Err(); err != nil {
			t.Fatal(err)
		}
		for _, event := range heard.Events {
			if strings.HasSuffix(string(event.Kv.Key), "/end") {
				if event.Kv.ModRevision > last {
					return changes
				}
				continue
			}
			changes = append(changes, fmt.Sprintf("%s %s at %d", event.Type, event.Kv.Key, event.Kv.ModRevision))
		}
	}
	t.Fatal("etcd's history has no end")
	return nil
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 2*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) { return holds(), nil })
	if err != nil && errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("never: %s", what)
	}
}

// still returns what reports whether a number has not changed for a while.
func still(of *atomic.Int32) func() bool {
	last, since := of.Load(), time.Now()
	return func() bool {
		if now := of.Load(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 50*time.Millisecond
	}
}
