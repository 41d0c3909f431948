package perterm_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/join"
	"github.com/regent-project/regent/pkg/election/perterm"
)

type requests struct {
	next http.RoundTripper
	mu   *sync.Mutex
	of   *[]string
}

func (r requests) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	*r.of = append(*r.of, req.Method+" "+req.URL.RequestURI())
	r.mu.Unlock()
	return r.next.RoundTrip(req)
}

// A program says once, in the options of its only manager, how its client is: what it does not cache, whether it tries
// only, as whom it writes.
func TestTheClientOptionsOfTheProcessHoldInATerm(t *testing.T) {
	var mu sync.Mutex
	var made []string
	w := prepare(t, func(o *manager.Options) {
		o.MapperProvider = func(_ *rest.Config, c *http.Client) (meta.RESTMapper, error) {
			c.Transport = requests{c.Transport, &mu, &made}
			return mapper(), nil
		}
		o.Client = client.Options{
			Cache:      &client.CacheOptions{DisableFor: []client.Object{&corev1.ConfigMap{}}},
			DryRun:     ptr.To(true),
			FieldOwner: "this-program",
		}
	})
	write := func(ctx context.Context, c client.Client) []string {
		mu.Lock()
		made = nil
		mu.Unlock()
		var obj corev1.ConfigMap
		_ = c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "one"}, &obj) // the shelf answers a list
		obj.ObjectMeta = metav1.ObjectMeta{Namespace: "default", Name: "one"}
		if err := c.Update(ctx, &obj); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(made)
	}
	done := make(chan []string, 1)
	w.begin(perterm.Options{}, func(m *perterm.Manager) error {
		return m.Add(manager.RunnableFunc(func(ctx context.Context) error {
			done <- write(ctx, m.GetClient())
			<-ctx.Done()
			return nil
		}))
	})
	got := <-done
	w.stop()
	last := got[len(got)-1]
	if !strings.Contains(last, "dryRun=All") {
		t.Errorf("Client.DryRun of the process is lost: the term writes for real: %s", last)
	}
	if !strings.Contains(last, "fieldManager=this-program") {
		t.Errorf("Client.FieldOwner of the process is lost: %s", last)
	}
	for _, r := range got {
		if strings.Contains(r, "watch=") {
			t.Errorf("Client.Cache.DisableFor of the process is lost: the term lists and watches all of them: %s", r)
		}
	}
}

// EnableWarmup, the priority queue, a second cluster: a term ends.
func TestATermEndsWithFeatures(t *testing.T) {
	other := newShelf(t)
	other.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other"}})
	w := begin(t, perterm.Options{Join: logLate(t)}, func(m *perterm.Manager) error {
		second, err := cluster.New(other.config(), func(o *cluster.Options) { o.MapperProvider = processOptions().MapperProvider; o.Scheme = m.GetScheme() })
		if err != nil {
			return err
		}
		if err := m.Add(second); err != nil {
			return err
		}
		c := &clerk{Client: m.GetClient(), m: m, extra: func(ctx context.Context) error {
			_ = second.GetClient().Get(ctx, client.ObjectKey{Namespace: "default", Name: "other"}, &corev1.ConfigMap{})
			second.GetEventRecorder("x").Eventf(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}}, nil, "Normal", "A", "B", "c")
			return nil
		}}
		return ctrl.NewControllerManagedBy(m).Named("clerk").For(&corev1.ConfigMap{}).
			WithOptions(controller.Options{EnableWarmup: ptr.To(true), UsePriorityQueue: ptr.To(true), MaxConcurrentReconciles: 5}).Complete(c)
	})
	for n := int64(1); n < 20; n++ {
		n = w.awaitEpoch(n)
		w.stepDown("next")
	}
	w.stop()
}

// A runnable fails, and controller-runtime ends all the others of the term. One of them is slow. Package join promises
// for the same case: "If lead returns or panics while others of its goroutines go on, the term ends at once."
func TestATermWhoseRunnableHasFailedEndsAtOnce(t *testing.T) {
	began, cancelled, hold, late := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan string, 100)
	var once sync.Once
	w := begin(t, perterm.Options{Join: join.Options{Patience: 500 * time.Millisecond, OnLate: func(l *join.Late) {
		select {
		case late <- l.Error():
		default:
		}
	}}}, func(m *perterm.Manager) error {
		if m.Term.Epoch() > 1 {
			return setUp(m, nil)
		}
		if err := m.Add(manager.RunnableFunc(func(ctx context.Context) error {
			close(began)
			<-ctx.Done()
			once.Do(func() { close(cancelled) })
			<-hold // a request without a context, a slow flush, …
			return nil
		})); err != nil {
			return err
		}
		return m.Add(manager.RunnableFunc(func(context.Context) error {
			<-began
			return context.DeadlineExceeded
		}))
	}, func(cfg *election.Config) { cfg.DrainTimeout = 200 * time.Millisecond })
	<-cancelled
	eventually(t, "the term is over, and who is late keeps the process from the next", func() bool { return w.elector.Status().State == "quarantined" })
	<-late
	close(hold)
	w.awaitEpoch(2)
	w.stop()
}

type forbidding struct{ next http.RoundTripper }

func (f forbidding) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.Contains(req.URL.Path, "/secrets") {
		return &http.Response{
			StatusCode: http.StatusForbidden, Status: "403 Forbidden", Header: http.Header{"Content-Type": {"application/json"}}, Request: req,
			Body: io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"secrets is forbidden"}`)),
		}, nil
	}
	return f.next.RoundTrip(req)
}

// A reconciler reads one object of a kind that its account may not list, for one of many items, with a time limit: that
// read fails, and the rest works. The next term of the process must work as this one does.
func TestAReadThatCannotBeServedSpoilsNoLaterTerm(t *testing.T) {
	epochs := make(chan int64)
	w := beginIn(t, secretsAreForbidden, perterm.Options{Join: logLate(t)}, func(m *perterm.Manager) error {
		return m.Add(manager.RunnableFunc(func(ctx context.Context) error {
			if m.Term.Epoch() == 1 {
				limited, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
				if err := m.GetClient().Get(limited, client.ObjectKey{Namespace: "default", Name: "x"}, &corev1.Secret{}); err == nil {
					t.Error("it was served")
				}
			}
			select {
			case epochs <- m.Term.Epoch():
			case <-ctx.Done():
			}
			<-ctx.Done()
			return nil
		}))
	})
	awaitNext(t, w, epochs, 1)
	w.stepDown("the next, please")
	awaitNext(t, w, epochs, 2)
	w.stop()
}

// A controller is for a kind that its account may not list. controller-runtime says so after CacheSyncTimeout, and a
// program ends, visibly, and again and again. Here each term must fail likewise, so that people see it and others can
// try.
func TestAKindThatCannotBeListedFailsEachTerm(t *testing.T) {
	works := make(chan int64, 100)
	w := beginIn(t, secretsAreForbidden, perterm.Options{Join: logLate(t)}, func(m *perterm.Manager) error {
		epoch := m.Term.Epoch()
		if err := m.Add(manager.RunnableFunc(func(ctx context.Context) error { works <- epoch; <-ctx.Done(); return nil })); err != nil {
			return err
		}
		return ctrl.NewControllerManagedBy(m).Named("secrets").For(&corev1.Secret{}).WithOptions(controller.Options{CacheSyncTimeout: 500 * time.Millisecond}).
			Complete(&clerk{Client: m.GetClient(), m: m})
	})
	for want := range int64(2) {
		select {
		case epoch := <-works:
			if epoch != want+1 {
				t.Errorf("work begins in epoch %d, want %d", epoch, want+1)
			}
		case <-time.After(soon):
			t.Fatalf("nothing of term %d runs, and it has not failed: %+v", want+1, w.elector.Status())
		}
	}
	w.store.Take("somebody else", time.Hour)
	// Once the term is joined, nothing of it is left: controller-runtime would spin for a cache that cannot sync.
	eventually(t, "it stands by", func() bool { return w.elector.Status().State == "standing by" })
	w.stop()
}

// Options.Configure "changes the options of each term's manager", for instance BaseContext, which programs set for the
// values that it carries. What a runnable leaves behind must be waited for all the same.
func TestATermWithItsOwnBaseContextIsWaitedFor(t *testing.T) {
	type key struct{}
	began, gate := make(chan struct{}), make(chan struct{})
	w := begin(t, perterm.Options{Join: logLate(t), Configure: func(o *manager.Options) {
		o.BaseContext = func() context.Context { return context.WithValue(context.Background(), key{}, "a value") }
	}}, func(m *perterm.Manager) error {
		if m.Term.Epoch() > 1 {
			return setUp(m, nil)
		}
		return m.Add(manager.RunnableFunc(func(ctx context.Context) error {
			if ctx.Value(key{}) == nil {
				t.Error("the program's context is not there")
			}
			go func() { <-gate }() // it ends late
			close(began)
			<-ctx.Done()
			return nil
		}))
	})
	<-began
	w.stepDown("next")
	eventually(t, "what is left of the term keeps the process from the next", func() bool { return w.elector.Status().State == "quarantined" })
	if w.look("one")["epoch"] != "" {
		t.Error("another term works beside it")
	}
	close(gate)
	w.awaitEpoch(2)
	w.stop()
}
