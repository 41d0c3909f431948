package perterm_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/election/join"
	"github.com/regent-project/regent/pkg/election/perterm"
)

var terms = flag.Int("terms", 100, "how many terms TestNothingGrowsOverTerms takes")

// series returns what /metrics has, by name and labels.
func series(t *testing.T) map[string]bool {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			all[fmt.Sprint(f.GetName(), m.GetLabel())] = true
		}
	}
	return all
}

// checkSeries checks that there are no more series than before but for some of errors and codes that are new.
func checkSeries(t *testing.T, before map[string]bool) {
	t.Helper()
	now := series(t)
	maps.DeleteFunc(now, func(s string, _ bool) bool { return before[s] })
	if len(before) == 0 || len(now) > 10 {
		t.Fatalf("%d series; new ones: %v", len(before), slices.Sorted(maps.Keys(now)))
	}
}

// ownGoroutines returns how many goroutines there are by the function that has started them, without those of queues of
// terms that are over (see leave in perterm.go: a queue may be forgotten at the end of any term, and goes bit by bit)
// and those of connections, of which there is one more whenever two requests meet.
func ownGoroutines() map[string]int {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	own := map[string]int{}
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		_, by, _ := strings.Cut(stack, "\ncreated by ")
		by, _, _ = strings.Cut(by, " in goroutine")
		if !strings.HasPrefix(by, "net/http.") && !strings.Contains(by, "/priorityqueue.") {
			own[by]++
		}
	}
	return own
}

// eventuallyNoMore waits until there are as few goroutines as before.
func eventuallyNoMore(t *testing.T, before map[string]int) {
	t.Helper()
	more := map[string]int{}
	defer func() {
		if t.Failed() {
			t.Logf("more than before, by what has started them: %v", more)
		}
	}()
	eventually(t, "as few goroutines as before", func() bool {
		clear(more)
		for by, n := range ownGoroutines() {
			if n > before[by] {
				more[by] = n - before[by]
			}
		}
		return len(more) == 0
	})
}

func TestNothingGrowsOverTerms(t *testing.T) {
	w := begin(t, perterm.Options{Warm: []client.Object{&corev1.ConfigMap{}}}, func(m *perterm.Manager) error {
		m.Metrics.MustRegister(prometheus.NewCounter(prometheus.CounterOpts{Name: "clerk_total", Help: "Comes again with each term."}))
		if err := m.GetFieldIndexer().IndexField(context.Background(), &corev1.ConfigMap{}, "epoch", func(client.Object) []string { return nil }); err != nil {
			return err
		}
		recorder := m.GetEventRecorder("clerk")
		return setUp(m, func(context.Context) error {
			recorder.Eventf(&corev1.ConfigMap{}, nil, corev1.EventTypeNormal, "Seen", "See", "in epoch %d", m.Term.Epoch())
			return nil
		})
	})
	defer w.stop()
	var goroutines map[string]int
	var shown map[string]bool
	epoch := int64(0)
	for n := range *terms {
		epoch = w.awaitEpoch(epoch + 1)
		if n == 4 { // the connections are there
			goroutines, shown = ownGoroutines(), series(t)
		}
		w.stepDown("the next, please")
	}
	w.awaitEpoch(epoch + 1)
	checkSeries(t, shown)
	eventuallyNoMore(t, goroutines)
	t.Logf("%d terms: %d series after 5, %d at the end; %d goroutines with connections and queues that controller-runtime has forgotten",
		*terms, len(shown), len(series(t)), runtime.NumGoroutine())
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watches != 1 {
		t.Errorf("%d watches of ConfigMaps, want the one of the process", w.watches)
	}
}

// hanging is a runnable that does not end with its context.
type hanging struct{ began, hangs, gate chan struct{} }

func (h *hanging) Start(ctx context.Context) error {
	close(h.began)
	<-ctx.Done()
	close(h.hangs)
	<-h.gate
	return nil
}

func TestWhoIsLateIsNamedAndTheNextTermWaitsForIt(t *testing.T) {
	for name, c := range map[string]struct {
		add  func(m *perterm.Manager, h *hanging) error
		want string
	}{
		"a runnable": {func(m *perterm.Manager, h *hanging) error { return m.Add(h) }, `"runnable":"*perterm_test.hanging"`},
		"a goroutine that a runnable has left": {func(m *perterm.Manager, h *hanging) error {
			return m.Add(manager.RunnableFunc(func(ctx context.Context) error { go func() { _ = h.Start(ctx) }(); return nil }))
		}, `.func2.1.1 {"runnable":"manager.RunnableFunc"}`},
		"a reconciler": {func(m *perterm.Manager, h *hanging) error { return setUp(m, h.Start) }, `clerk"`},
	} {
		t.Run(name, func(t *testing.T) {
			h, late := &hanging{make(chan struct{}), make(chan struct{}), make(chan struct{})}, make(chan string, 100)
			var first sync.Once
			o := perterm.Options{Join: join.Options{Patience: 20 * time.Millisecond, OnLate: func(l *join.Late) {
				select {
				case late <- l.Error():
				default:
				}
			}}}
			w := begin(t, o, func(m *perterm.Manager) (err error) {
				hangs := false
				if first.Do(func() { hangs, err = true, c.add(m, h) }); hangs {
					return err
				}
				return setUp(m, nil)
			})
			defer w.stop()
			<-h.began
			w.stepDown("hang")
			<-h.hangs
			if said := <-late; !strings.Contains(said, c.want) {
				t.Errorf("%s: want %s", said, c.want)
			}
			eventually(t, "quarantine", func() bool { return w.elector.Status().State == "quarantined" })
			if w.look("one")["epoch"] != "" {
				t.Error("another term has begun beside the late one")
			}
			close(h.gate)
			w.awaitEpoch(2)
		})
	}
}

func TestAPanicEndsTheTermAndNotTheProcessAndIsNamed(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		add  func(m *perterm.Manager) error
		want string // what the log and the Lease say
	}{
		"of setup": {func(*perterm.Manager) error { panic(boom) }, "failed: cannot set up the term: panic: boom"},
		"of a runnable": {func(m *perterm.Manager) error {
			return m.Add(manager.RunnableFunc(func(context.Context) error { panic(boom) }))
		}, "failed: runnable manager.RunnableFunc: panic: boom"},
		"of a webhook": {func(m *perterm.Manager) error {
			m.GetWebhookServer()
			return nil
		}, "failed: cannot set up the term: panic: a webhook: it must work on every replica"},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int32
			w := begin(t, perterm.Options{}, func(m *perterm.Manager) error {
				if calls.Add(1) == 1 {
					return c.add(m)
				}
				return setUp(m, nil)
			})
			defer w.stop()
			w.awaitEpoch(2)
			if said := w.log.line("The term has ended"); !strings.Contains(said, c.want) || !strings.Contains(said, "perterm_test.go:") {
				t.Errorf("the log: %s: want %s, and the stack", said, c.want)
			}
			if said := fmt.Sprint(w.store.Lease().Annotations); !strings.Contains(said, c.want) {
				t.Errorf("the Lease: %s: want %s", said, c.want)
			}
		})
	}
}

// It is controller-runtime's: the item is tried again.
func TestAPanicOfAReconcilerEndsNoTerm(t *testing.T) {
	var calls atomic.Int32
	w := begin(t, perterm.Options{}, func(m *perterm.Manager) error {
		return setUp(m, func(context.Context) error {
			if calls.Add(1) == 1 {
				panic("boom")
			}
			return nil
		})
	})
	defer w.stop()
	if epoch := w.awaitEpoch(1); epoch != 1 || calls.Load() < 2 {
		t.Errorf("written in epoch %d, after %d calls", epoch, calls.Load())
	}
}

func fenced(cfg *election.Config) { cfg.Fenced = true }

// A server that does not check tokens needs none, and one that does may be without logical clusters.
func TestWritesCarryATokenIfAndOnlyIfTheElectionIsFenced(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*election.Config)
		want   bool
	}{
		"fenced":                   {fenced, true},
		"fenced, without clusters": {func(cfg *election.Config) { cfg.Fenced, cfg.Cluster = true, "" }, true},
		"not fenced":               {func(*election.Config) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, perterm.Options{}, func(m *perterm.Manager) error { return setUp(m, nil) }, c.change)
			defer w.stop()
			w.awaitEpoch(1)
			w.mu.Lock()
			defer w.mu.Unlock()
			if got := w.tokens[0]; (got != "") != c.want {
				t.Errorf("the token of the first write: %q", got)
			}
		})
	}
}

func TestWritesOfATermCarryItsTokenAndARefusedOneEndsIt(t *testing.T) {
	w := begin(t, perterm.Options{}, func(m *perterm.Manager) error { return setUp(m, nil) }, fenced)
	defer w.stop()
	epoch := w.awaitEpoch(1)
	w.mu.Lock()
	token, err := fence.Parse(w.tokens[:1])
	w.refuse = true
	meta := w.objects["one"].ObjectMeta
	w.mu.Unlock()
	if err != nil || token.Epoch != 1 || token.Name != "example" {
		t.Errorf("token %v: %v", token, err)
	}
	w.put(&corev1.ConfigMap{ObjectMeta: meta}) // it wants another write
	eventually(t, "the end of the term whose write was refused", func() bool { return w.elector.Status().Epoch > epoch || w.elector.Status().State != "leading" })
	w.mu.Lock()
	w.refuse = false
	w.mu.Unlock()
	w.awaitEpoch(epoch + 1)
}

func TestTheElectionLogsWhereTheManagerLogs(t *testing.T) {
	w := begin(t, perterm.Options{}, func(m *perterm.Manager) error { return setUp(m, nil) })
	w.awaitEpoch(1)
	w.stop()
	for _, want := range []string{`"lease"="default/example"`, "The term has ended", "Starting Controller"} {
		if w.log.line(want) == "" {
			t.Errorf("the manager's log has no line with %s", want)
		}
	}
}

func TestWhatEachReplicaMustHaveIsRefused(t *testing.T) {
	var once sync.Once
	w := begin(t, perterm.Options{}, func(m *perterm.Manager) error {
		once.Do(func() {
			for name, err := range map[string]error{
				"health check":    m.AddHealthzCheck("a", healthz.Ping),
				"readiness check": m.AddReadyzCheck("a", healthz.Ping),
				"metrics handler": m.AddMetricsServerExtraHandler("/a", nil),
				"removal":         m.GetCache().RemoveInformer(context.Background(), &corev1.ConfigMap{}),
			} {
				if err == nil || !strings.Contains(err.Error(), "process") {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
		return setUp(m, nil)
	})
	defer w.stop()
	w.awaitEpoch(1)
}

// It is what remains when a program moves to this package and forgets to turn it off.
func TestAManagerThatElectsItselfIsRefused(t *testing.T) {
	process := newProcess(t, newShelf(t), func(o *manager.Options) {
		o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, "example", "default"
	})
	defer process.GetHTTPClient().CloseIdleConnections()
	add := func(process manager.Manager) error {
		return perterm.Add(process, exits{}, perterm.Options{}, func(*perterm.Manager) error { return nil })
	}
	if err := add(process); err == nil || !strings.Contains(err.Error(), "set manager.Options.LeaderElection to false") {
		t.Errorf("added to a manager that elects: %v", err)
	}
	for name, other := range map[string]manager.Manager{
		"a manager of another type":         struct{ manager.Manager }{newProcess(t, newShelf(t))},
		"one whose lock is of another type": &locked{Manager: newProcess(t, newShelf(t)), resourceLock: "a"},
		"one whose lock is that of a part":  &nested{newProcess(t, newShelf(t)), &part{resourceLock: "a"}},
	} {
		if err := add(other); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type locked struct {
	manager.Manager
	resourceLock string
}

type part struct{ resourceLock any }

type nested struct {
	manager.Manager
	*part
}

func TestAnExitOfTheElectionEndsTheProcess(t *testing.T) {
	s := newShelf(t)
	process := newProcess(t, s)
	if err := perterm.Add(process, exits{}, perterm.Options{}, func(*perterm.Manager) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := process.Start(t.Context()); !errors.Is(err, election.ErrExit) {
		t.Errorf("the process ends with %v", err)
	}
}

type exits struct{}

func (exits) Run(context.Context, election.LeadFunc) error { return election.ErrExit }
