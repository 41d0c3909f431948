package perterm_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/regent-project/regent/pkg/election/join"
	"github.com/regent-project/regent/pkg/election/perterm"
)

// reading is the work of a term: it reads ConfigMaps of these namespaces through the term's client, as a reconciler
// does, and waits for the end.
func reading(epochs chan<- int64, namespaces ...string) func(m *perterm.Manager) error {
	return func(m *perterm.Manager) error {
		return m.Add(manager.RunnableFunc(func(ctx context.Context) error {
			for _, namespace := range namespaces {
				err := m.GetClient().Get(ctx, client.ObjectKey{Namespace: namespace, Name: "two"}, &corev1.ConfigMap{})
				if client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
					return err
				}
			}
			select {
			case epochs <- m.Term.Epoch():
			case <-ctx.Done():
			}
			<-ctx.Done()
			return nil
		}))
	}
}

// logLate logs who is late.
func logLate(t *testing.T) join.Options {
	return join.Options{Patience: 500 * time.Millisecond, OnLate: func(l *join.Late) { t.Logf("late: %v", l) }}
}

func awaitNext(t *testing.T, w *world, epochs <-chan int64, want int64) {
	t.Helper()
	select {
	case got := <-epochs:
		if got != want {
			t.Errorf("epoch %d, want %d", got, want)
		}
	case <-time.After(soon):
		t.Errorf("%v after the term was asked to end there is no next one: the elector is %s", soon, w.elector.Status().State)
	}
}

// A program with a cache of several namespaces (cache.Options.DefaultNamespaces) reads a kind that it does not watch,
// in two of them.
func TestATermEndsThatHasReadInTwoNamespaces(t *testing.T) {
	epochs := make(chan int64)
	w := beginIn(t, func(o *manager.Options) {
		o.Cache.DefaultNamespaces = map[string]cache.Config{"default": {}, "another": {}}
	}, perterm.Options{Join: logLate(t)}, reading(epochs, "default", "another"))
	awaitNext(t, w, epochs, 1)
	w.stepDown("the next, please")
	awaitNext(t, w, epochs, 2)
	w.stop()
}

// The same in one namespace: it ends.
func TestATermEndsThatHasReadInOneNamespace(t *testing.T) {
	epochs := make(chan int64)
	w := beginIn(t, func(o *manager.Options) {
		o.Cache.DefaultNamespaces = map[string]cache.Config{"default": {}, "another": {}}
	}, perterm.Options{Join: logLate(t)}, reading(epochs, "default"))
	awaitNext(t, w, epochs, 1)
	w.stepDown("the next, please")
	awaitNext(t, w, epochs, 2)
	w.stop()
}

// The error of RemoveInformer says: "remove it from the cache of the process's manager". A program does so, between two
// reads of a term.
func TestATermEndsThatReadsWhatTheProcessHasRemoved(t *testing.T) {
	w, epochs := prepare(t, asItIs), make(chan int64)
	w.begin(perterm.Options{Join: logLate(t)}, func(m *perterm.Manager) error {
		return m.Add(manager.RunnableFunc(func(ctx context.Context) error {
			read := func() {
				_ = m.GetClient().Get(ctx, client.ObjectKey{Namespace: "default", Name: "two"}, &corev1.ConfigMap{})
			}
			read()
			if m.Term.Epoch() == 1 {
				if err := w.process.GetCache().RemoveInformer(ctx, &corev1.ConfigMap{}); err != nil {
					t.Error(err)
				}
				read()
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

type recorded struct {
	next http.RoundTripper
	mu   *sync.Mutex
	seen map[string]string // user agent by method
}

func (r recorded) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.seen[req.Method] = req.Header.Get("User-Agent")
	r.mu.Unlock()
	return r.next.RoundTrip(req)
}

type countingLimiter struct {
	flowcontrol.RateLimiter
	n *atomic.Int32
}

func (c countingLimiter) Wait(context.Context) error { c.n.Add(1); return nil }

// "Transport: … it has the credentials and the user agent."
func TestTheClientsOfATermAreTheProcesss(t *testing.T) {
	s := newShelf(t)
	config := s.config()
	seen := recorded{mu: &sync.Mutex{}, seen: map[string]string{}}
	config.UserAgent = "my-operator/1.0"
	var waits atomic.Int32
	config.RateLimiter = countingLimiter{flowcontrol.NewFakeAlwaysRateLimiter(), &waits}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		r := seen
		r.next = next
		return r
	})
	process, err := manager.New(config, processOptions())
	if err != nil {
		t.Fatal(err)
	}
	w, wrote := prepareOn(t, s, process), make(chan struct{})
	w.begin(perterm.Options{}, func(m *perterm.Manager) error {
		return m.Add(manager.RunnableFunc(func(ctx context.Context) error {
			before := waits.Load()
			obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}}
			if err := m.GetClient().Update(ctx, obj); err != nil {
				t.Error(err)
			}
			if waits.Load() == before {
				t.Error("the rate limiter of the process's configuration is not asked for a write of the term")
			}
			close(wrote)
			<-ctx.Done()
			return nil
		}))
	})
	<-wrote
	w.stop()
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if got := seen.seen[http.MethodPut]; got != "my-operator/1.0" {
		t.Errorf("the user agent of a write of the term is %q", got)
	}
}

// A controller that is left on the manager of the process, whose LeaderElection had to be turned off, needs a leader by
// what it says.
func TestWhatNeedsALeaderDoesNotRunOnAStandby(t *testing.T) {
	w := prepare(t, asItIs)
	if err := w.process.Add(needs(func(context.Context) error { t.Error("it runs"); return nil })); err != nil {
		t.Fatal(err)
	}
	err := perterm.Add(w.process, w.elector, perterm.Options{}, func(*perterm.Manager) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "perterm_test.needs") || !strings.Contains(err.Error(), "Add it to the manager of the term") {
		t.Errorf("it is left to every replica: %v", err)
	}
}

type needs func(context.Context) error

func (n needs) Start(ctx context.Context) error { return n(ctx) }
func (needs) NeedLeaderElection() bool          { return true }

// The manager of a term logs with the epoch. So should its controllers.
func TestControllersLogTheEpoch(t *testing.T) {
	w := begin(t, perterm.Options{}, func(m *perterm.Manager) error { return setUp(m, nil) })
	w.awaitEpoch(1)
	w.stop()
	t.Log(w.log.line("Starting Controller"))
	if line := w.log.line("Starting Controller"); !strings.Contains(line, `"epoch"=1`) {
		t.Errorf("no epoch in %s", line)
	}
}

// A runnable that says that it needs no leader election ran on every replica, when it was added to the program's only
// manager.
func TestWhatNeedsNoLeaderIsNotSilentlyLedOnly(t *testing.T) {
	refused := make(chan error, 10)
	w := begin(t, perterm.Options{}, func(m *perterm.Manager) error {
		refused <- m.Add(everywhere(func(ctx context.Context) error { <-ctx.Done(); return nil }))
		return nil
	})
	select {
	case err := <-refused:
		if err == nil {
			t.Error("accepted without a word, as part of a term: standbys do not run it any more")
		}
	case <-time.After(soon):
		t.Error("no term")
	}
	w.stop()
}

type everywhere func(context.Context) error

func (e everywhere) Start(ctx context.Context) error { return e(ctx) }
func (everywhere) NeedLeaderElection() bool          { return false }

// A reconciler that is moved into a term, and keeps the client that it was made with before.
func TestAWriteOfATermByTheClientOfTheProcessIsFencedOrRefused(t *testing.T) {
	w, wrote := prepare(t, asItIs, fenced), make(chan error, 1)
	w.begin(perterm.Options{}, func(m *perterm.Manager) error {
		return m.Add(manager.RunnableFunc(func(ctx context.Context) error {
			wrote <- w.process.GetClient().Update(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}})
			<-ctx.Done()
			return nil
		}))
	})
	err := <-wrote
	w.stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && len(w.tokens) > 0 && w.tokens[0] == "" {
		t.Error("written in the term, under an election that says it is fenced, without a token")
	}
}
