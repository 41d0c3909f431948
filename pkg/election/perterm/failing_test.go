package perterm_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
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
	"github.com/regent-project/regent/pkg/election/electiontest"
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
	s, store := newShelf(t), electiontest.NewStore("example")
	s.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}})
	var mu sync.Mutex
	var made []string
	config := s.config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return requests{next, &mu, &made} })
	o := processOptions()
	o.Client = client.Options{
		Cache:      &client.CacheOptions{DisableFor: []client.Object{&corev1.ConfigMap{}}},
		DryRun:     ptr.To(true),
		FieldOwner: "this-program",
	}
	process, err := manager.New(config, o)
	if err != nil {
		t.Fatal(err)
	}
	cfg := election.DefaultConfig()
	cfg.Namespace, cfg.Name, cfg.Client = "default", "example", store.Client()
	elector, err := election.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	write := func(ctx context.Context, c client.Client) []string {
		mu.Lock()
		made = nil
		mu.Unlock()
		var obj corev1.ConfigMap
		if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "one"}, &obj); err != nil && !strings.Contains(err.Error(), "unknown") {
			t.Log(err)
		}
		obj.ObjectMeta = metav1.ObjectMeta{Namespace: "default", Name: "one"}
		if err := c.Update(ctx, &obj); err != nil {
			t.Log(err)
		}
		mu.Lock()
		defer mu.Unlock()
		return append([]string{}, made...)
	}
	both := make(chan [2][]string, 1)
	if err := perterm.Add(process, elector, perterm.Options{}, func(m *perterm.Manager) error {
		return m.Add(manager.RunnableFunc(func(ctx context.Context) error {
			both <- [2][]string{write(ctx, process.GetClient()), write(ctx, m.GetClient())}
			<-ctx.Done()
			return nil
		}))
	}); err != nil {
		t.Fatal(err)
	}
	stop := start(t, process)
	got := <-both
	stop()
	t.Logf("the process's client: %v", got[0])
	t.Logf("the term's client:    %v", got[1])
	last := got[1][len(got[1])-1]
	if !strings.Contains(last, "dryRun=All") {
		t.Errorf("Client.DryRun of the process is lost: the term writes for real: %s", last)
	}
	if !strings.Contains(last, "fieldManager=this-program") {
		t.Errorf("Client.FieldOwner of the process is lost: %s", last)
	}
	for _, r := range got[1] {
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
		time.Sleep(time.Millisecond)
	}
	w.stop()
}

// A runnable fails, and controller-runtime ends all the others of the term. One of them is slow. Package join promises
// for the same case: "If lead returns or panics while others of its goroutines go on, the term ends at once."
func TestATermWhoseRunnableHasFailedEndsAtOnce(t *testing.T) {
	s, store := newShelf(t), electiontest.NewStore("example")
	process := newProcess(t, s)
	cfg := election.DefaultConfig()
	cfg.Namespace, cfg.Name, cfg.Client = "default", "example", store.Client()
	cfg.LeaseDuration, cfg.RenewDeadline, cfg.RetryPeriod, cfg.DrainTimeout = time.Second, 700*time.Millisecond, 100*time.Millisecond, 200*time.Millisecond
	elector, err := election.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	failed, cancelled, hold := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var once sync.Once
	var late sync.Map
	if err := perterm.Add(process, elector, perterm.Options{Join: join.Options{Patience: 500 * time.Millisecond, OnLate: func(l *join.Late) { late.Store(l.Error(), true) }}}, func(m *perterm.Manager) error {
		if err := m.Add(manager.RunnableFunc(func(ctx context.Context) error {
			<-ctx.Done()
			once.Do(func() { close(cancelled) })
			<-hold // a request without a context, a slow flush, …
			return nil
		})); err != nil {
			return err
		}
		return m.Add(manager.RunnableFunc(func(ctx context.Context) error {
			time.Sleep(100 * time.Millisecond)
			close(failed)
			return context.DeadlineExceeded
		}))
	}); err != nil {
		t.Fatal(err)
	}
	stop := start(t, process)
	<-failed
	<-cancelled
	eventually(t, "the term is over, and who is late keeps the process from the next", func() bool { return elector.Status().State == "quarantined" })
	eventually(t, "the late one is reported", func() (reported bool) {
		late.Range(func(any, any) bool { reported = true; return false })
		return reported
	})
	close(hold)
	stop()
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
	s, store := newShelf(t), electiontest.NewStore("example")
	config := s.config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return forbidding{next} })
	o := processOptions()
	o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
		m := meta.NewDefaultRESTMapper(nil)
		m.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
		m.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
		return m, nil
	}
	process, err := manager.New(config, o)
	if err != nil {
		t.Fatal(err)
	}
	cfg := election.DefaultConfig()
	cfg.Namespace, cfg.Name, cfg.Client = "default", "example", store.Client()
	cfg.RetryPeriod, cfg.DrainTimeout = 20*time.Millisecond, 50*time.Millisecond
	elector, err := election.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	epochs := make(chan int64)
	if err := perterm.Add(process, elector, perterm.Options{Join: logLate(t)}, func(m *perterm.Manager) error {
		return m.Add(manager.RunnableFunc(func(ctx context.Context) error {
			if m.Term.Epoch() == 1 {
				limited, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
				t.Log("the read: ", m.GetClient().Get(limited, client.ObjectKey{Namespace: "default", Name: "x"}, &corev1.Secret{}))
			}
			select {
			case epochs <- m.Term.Epoch():
			case <-ctx.Done():
			}
			<-ctx.Done()
			return nil
		}))
	}); err != nil {
		t.Fatal(err)
	}
	stop := start(t, process)
	awaitNext(t, leading{elector}, epochs, 1)
	if _, err := elector.StepDown("the next, please", ""); err != nil {
		t.Fatal(err)
	}
	awaitNext(t, leading{elector}, epochs, 2)
	stop()
}

// A controller is for a kind that its account may not list. controller-runtime says so after CacheSyncTimeout, and a
// program ends, visibly, and again and again. Here each term must fail likewise, so that people see it and others can
// try.
func TestAKindThatCannotBeListedFailsEachTerm(t *testing.T) {
	s, store := newShelf(t), electiontest.NewStore("example")
	config := s.config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return forbidding{next} })
	o := processOptions()
	o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
		m := meta.NewDefaultRESTMapper(nil)
		m.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
		m.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
		return m, nil
	}
	process, err := manager.New(config, o)
	if err != nil {
		t.Fatal(err)
	}
	cfg := election.DefaultConfig()
	cfg.Namespace, cfg.Name, cfg.Client = "default", "example", store.Client()
	cfg.RetryPeriod, cfg.DrainTimeout = 20*time.Millisecond, 50*time.Millisecond
	elector, err := election.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan int64, 100)
	setUps := make(chan int64, 100)
	if err := perterm.Add(process, elector, perterm.Options{Join: logLate(t)}, func(m *perterm.Manager) error {
		setUps <- m.Term.Epoch()
		if err := m.Add(manager.RunnableFunc(func(ctx context.Context) error { started <- m.Term.Epoch(); <-ctx.Done(); return nil })); err != nil {
			return err
		}
		return ctrl.NewControllerManagedBy(m).Named("secrets").For(&corev1.Secret{}).WithOptions(controller.Options{CacheSyncTimeout: 500 * time.Millisecond}).
			Complete(&clerk{Client: m.GetClient(), m: m})
	}); err != nil {
		t.Fatal(err)
	}
	stop := start(t, process)
	t.Log("set up in epoch", <-setUps, "work begins in epoch", <-started)
	t.Log("set up in epoch", <-setUps) // the first has failed, as it should
	select {
	case epoch := <-started:
		t.Log("work begins in epoch", epoch)
	case <-time.After(10 * time.Second):
		t.Errorf("20 times CacheSyncTimeout after the second term has begun nothing of it runs, and it has not failed: the elector is %s: %+v", elector.Status().State, elector.Status().CannotRead)
	}
	store.Take("somebody else", time.Hour)
	time.Sleep(time.Second)
	before := cpu()
	time.Sleep(3 * time.Second)
	if used := cpu() - before; used > time.Second {
		t.Errorf("3 s after the loss of the lease this process is %s, and has used %s of CPU in the last 3 s", elector.Status().State, used)
	}
	stop()
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Options.Configure "changes the options of each term's manager", for instance BaseContext, which programs set for the
// values that it carries. What a runnable leaves behind must be waited for all the same.
func TestATermWithItsOwnBaseContextIsWaitedFor(t *testing.T) {
	var left sync.Map
	w := begin(t, perterm.Options{Join: logLate(t), Configure: func(o *manager.Options) {
		o.BaseContext = func() context.Context { return context.WithValue(context.Background(), leading{}, "a value") }
	}}, func(m *perterm.Manager) error {
		epoch := m.Term.Epoch()
		if err := m.Add(manager.RunnableFunc(func(ctx context.Context) error {
			go func() { // it ends late
				left.Store(epoch, true)
				<-ctx.Done()
				time.Sleep(2 * time.Second)
				left.Delete(epoch)
			}()
			<-ctx.Done()
			return nil
		})); err != nil {
			return err
		}
		return setUp(m, func(context.Context) error {
			if _, ok := left.Load(epoch - 1); ok {
				t.Errorf("epoch %d works beside what is left of the last", epoch)
			}
			return nil
		})
	})
	w.awaitEpoch(1)
	time.Sleep(100 * time.Millisecond)
	w.stepDown("next")
	w.awaitEpoch(2)
	w.stop()
	time.Sleep(3 * time.Second)
}
