package perterm_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/perterm"
)

const queue = "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue.(*priorityqueue[...])."

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		goleak.IgnoreAnyFunction(queue+"handleReadyItems"), goleak.IgnoreAnyFunction(queue+"handleAddBuffer"),
		goleak.IgnoreAnyFunction(queue+"handleWaitingItems"), goleak.IgnoreAnyFunction(queue+"logState"),
		goleak.IgnoreAnyFunction(queue+"updateUnfinishedWorkLoop"), // see leave
		goleak.IgnoreAnyFunction("sigs.k8s.io/controller-runtime/pkg/cache.newMultiNamespaceInformerHandlerRegistration.func1"))
}

const soon = 60 * time.Second

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(soon); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// clerk writes into each ConfigMap in which epoch it has seen it.
type clerk struct {
	client.Client
	m     *perterm.Manager
	extra func(ctx context.Context) error
}

func (c *clerk) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var obj corev1.ConfigMap
	if err := c.Get(ctx, req.NamespacedName, &obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if c.extra != nil {
		if err := c.extra(ctx); err != nil {
			return ctrl.Result{}, err
		}
	}
	if epoch := fmt.Sprint(c.m.Term.Epoch()); obj.Data["epoch"] != epoch {
		obj.Data = map[string]string{"epoch": epoch}
		return ctrl.Result{}, c.Update(ctx, &obj)
	}
	return ctrl.Result{}, nil
}

// setUp adds the clerk as most programs add their controllers.
func setUp(m *perterm.Manager, extra func(ctx context.Context) error) error {
	c := &clerk{Client: m.GetClient(), m: m, extra: extra}
	return ctrl.NewControllerManagedBy(m).Named("clerk").For(&corev1.ConfigMap{}).Complete(c)
}

// world is a process that leads, beside an API server with one ConfigMap.
type world struct {
	*shelf
	t       *testing.T
	process manager.Manager
	elector *election.Elector
	store   *electiontest.Store
	log     *journal
	stop    func()
}

// journal has the lines of a log.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) write(_, line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

// line returns the first line that contains text.
func (j *journal) line(text string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, line := range j.lines {
		if strings.Contains(line, text) {
			return line
		}
	}
	return ""
}

// begin starts the process.
func begin(t *testing.T, o perterm.Options, setup func(m *perterm.Manager) error, change ...func(*election.Config)) *world {
	t.Helper()
	return beginIn(t, asItIs, o, setup, change...)
}

// beginIn starts the process with other options of its manager.
func beginIn(t *testing.T, options func(*manager.Options), o perterm.Options, setup func(m *perterm.Manager) error, change ...func(*election.Config)) *world {
	t.Helper()
	w := prepare(t, options, change...)
	w.begin(o, setup)
	return w
}

// prepare makes the process, and starts nothing.
func prepare(t *testing.T, options func(*manager.Options), change ...func(*election.Config)) *world {
	t.Helper()
	j := &journal{}
	s := newShelf(t)
	w := prepareOn(t, s, newProcess(t, s, func(o *manager.Options) { o.Logger = funcr.New(j.write, funcr.Options{}) }, options), change...)
	w.log = j
	return w
}

// prepareOn does it for a process that is made already.
func prepareOn(t *testing.T, s *shelf, process manager.Manager, change ...func(*election.Config)) *world {
	t.Helper()
	w := &world{shelf: s, t: t, process: process, store: electiontest.NewStore("example"), log: &journal{}}
	w.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}})
	w.elector = newElector(t, w.store, change...)
	return w
}

// begin starts the process, which runs setup in each term.
func (w *world) begin(o perterm.Options, setup func(m *perterm.Manager) error) {
	w.t.Helper()
	if err := perterm.Add(w.process, w.elector, o, setup); err != nil {
		w.t.Fatal(err)
	}
	w.stop = start(w.t, w.process)
}

// asItIs changes no option of a manager.
func asItIs(*manager.Options) {}

func newElector(t *testing.T, store *electiontest.Store, change ...func(*election.Config)) *election.Elector {
	t.Helper()
	cfg := election.DefaultConfig()
	cfg.Namespace, cfg.Name, cfg.Client, cfg.Cluster = "default", "example", store.Client(), "root"
	cfg.RetryPeriod, cfg.DrainTimeout = 20*time.Millisecond, 50*time.Millisecond
	for _, f := range change {
		f(&cfg)
	}
	elector, err := election.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return elector
}

// processOptions are those of newProcess.
func processOptions() manager.Options {
	return manager.Options{
		Metrics: server.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return mapper(), nil
		},
	}
}

func newProcess(t *testing.T, s *shelf, change ...func(*manager.Options)) manager.Manager {
	t.Helper()
	o := processOptions()
	for _, f := range change {
		f(&o)
	}
	process, err := manager.New(s.config(), o)
	if err != nil {
		t.Fatal(err)
	}
	return process
}

func start(t *testing.T, process manager.Manager) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- process.Start(ctx) }()
	return func() {
		t.Helper()
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("the process: %v", err)
			}
		case <-time.After(soon):
			t.Error("the process has not ended")
		}
		process.GetHTTPClient().CloseIdleConnections()
	}
}

// awaitEpoch waits until a term at or after epoch has written, and returns its epoch.
func (w *world) awaitEpoch(epoch int64) int64 {
	w.t.Helper()
	var seen int64
	eventually(w.t, fmt.Sprintf("a write in epoch %d", epoch), func() bool {
		seen, _ = strconv.ParseInt(w.look("one")["epoch"], 10, 64)
		return seen >= epoch
	})
	return seen
}

// stepDown ends the term.
func (w *world) stepDown(reason string) {
	w.t.Helper()
	if _, err := w.elector.StepDown(reason, ""); err != nil {
		w.t.Fatal(err)
	}
}
