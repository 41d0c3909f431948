package mcr_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/leader"
	"github.com/regent-project/regent/pkg/election/mcr"
)

func TestMain(m *testing.M) {
	flag.Parse()
	logger := textlogger.NewLogger(textlogger.NewConfig())
	if !testing.Verbose() {
		logger = textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(io.Discard)))
	}
	klog.SetLogger(logger)
	log.SetLogger(logr.New(logger.GetSink()))
	goleak.VerifyTestMain(m,
		// Started by the package's init function, for the life of the process.
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

const (
	// patience bounds what is waited for. Nothing takes a fraction of it.
	patience = 30 * time.Second
	// objects are how many there are in each cluster.
	objects = 3
)

// server keeps Leases.
type server struct {
	store  *electiontest.Store
	config *rest.Config
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{store: electiontest.NewStore("example")}
	mux := http.NewServeMux()
	mux.Handle(electiontest.LeasesPath, electiontest.Handler(s.store.Client()))
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	s.config = &rest.Config{Host: web.URL}
	return s
}

// names returns those of n clusters.
func names(n int) (all []multicluster.ClusterName) {
	for i := range n {
		all = append(all, multicluster.ClusterName(fmt.Sprintf("cluster-%d", i)))
	}
	return all
}

// fake is a cluster. Nobody asks for more than whether it is the same.
type fake struct{ cluster.Cluster }

// provider has some clusters, and engages those that are added.
type provider struct {
	mu    sync.Mutex
	aware multicluster.Aware
	ctx   context.Context
	ends  map[multicluster.ClusterName]context.CancelFunc
}

// Start implements multicluster.ProviderRunnable.
func (p *provider) Start(ctx context.Context, aware multicluster.Aware) error {
	p.mu.Lock()
	p.ctx, p.aware = ctx, aware
	p.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (p *provider) Get(context.Context, multicluster.ClusterName) (cluster.Cluster, error) {
	return nil, multicluster.ErrClusterNotFound
}

func (p *provider) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}

func (p *provider) add(t *testing.T, names ...multicluster.ClusterName) {
	t.Helper()
	until(t, "the provider has started", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.aware != nil
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range names {
		ctx, cancel := context.WithCancel(p.ctx)
		if before := p.ends[name]; before != nil {
			before()
		}
		p.ends[name] = cancel
		if err := p.aware.Engage(ctx, name, &fake{}); err != nil {
			t.Errorf("engage %s: %v", name, err)
		}
	}
}

func (p *provider) remove(name multicluster.ClusterName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends[name]()
	delete(p.ends, name)
}

// all is a source that has the objects of each cluster when it starts there, as an informer has.
type all struct{}

func (all) ForCluster(name multicluster.ClusterName, _ cluster.Cluster) (source.TypedSource[mcreconcile.Request], bool, error) {
	return source.TypedFunc[mcreconcile.Request](func(_ context.Context, q workqueue.TypedRateLimitingInterface[mcreconcile.Request]) error {
		for i := range objects {
			q.Add(request(name, i))
		}
		return nil
	}), true, nil
}

func request(of multicluster.ClusterName, i int) mcreconcile.Request {
	return mcreconcile.Request{ClusterName: of, Request: reconcile.Request{NamespacedName: types.NamespacedName{Name: fmt.Sprint(i)}}}
}

// ledger has who works in which cluster, over all processes, and fails the test if two do.
type ledger struct {
	t    *testing.T
	mu   sync.Mutex
	now  map[multicluster.ClusterName]map[string]int
	done map[multicluster.ClusterName]map[string]int // reconciles by each process
}

func newLedger(t *testing.T) *ledger {
	return &ledger{t: t, now: map[multicluster.ClusterName]map[string]int{}, done: map[multicluster.ClusterName]map[string]int{}}
}

func (l *ledger) begin(of multicluster.ClusterName, who string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now[of] == nil {
		l.now[of], l.done[of] = map[string]int{}, map[string]int{}
	}
	l.now[of][who]++
	l.done[of][who]++
	for other, n := range l.now[of] {
		if other != who && n > 0 {
			l.t.Errorf("%s and %s work in %s at a time", who, other, of)
		}
	}
}

func (l *ledger) end(of multicluster.ClusterName, who string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now[of][who]--
}

// by returns how many reconciles each process has made in a cluster.
func (l *ledger) by(of multicluster.ClusterName) map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.done[of])
}

// process is one that works, with everything that a program has.
type process struct {
	t           *testing.T
	name        string
	provider    *provider
	coordinator *mcr.Coordinator
	manager     mcmanager.Manager
	end         context.CancelFunc
	ended       chan error
}

// config is that of a process.
func config(name string) leader.Config {
	return leader.Config{
		Namespace: "default", Name: "example", Replica: name,
		LeaseDuration: 2 * time.Second, RenewDeadline: 1500 * time.Millisecond, RetryPeriod: 200 * time.Millisecond,
	}
}

// newProcess makes a process, and starts nothing.
func (s *server) newProcess(t *testing.T, name string, change ...func(*leader.Config)) *process {
	t.Helper()
	cfg := config(name)
	for _, c := range change {
		c(&cfg)
	}
	p := &process{t: t, name: name, provider: &provider{ends: map[multicluster.ClusterName]context.CancelFunc{}}, ended: make(chan error, 1)}
	var err error
	p.coordinator, err = mcr.New(s.config, cfg, mcr.Options{Ranges: 8, EngageTimeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	p.manager, err = mcmanager.New(s.config, p.provider, manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}}, mcmanager.WithCoordinator(p.coordinator))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// controls adds a controller with that reconciler.
func (p *process) controls(do mcreconcile.Func) *process {
	p.t.Helper()
	c, err := mccontroller.New("example", p.manager, mccontroller.Options{Reconciler: do, SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: 4})
	if err == nil {
		err = c.MultiClusterWatch(all{})
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return p
}

// start starts the process.
func (p *process) start() *process {
	var ctx context.Context
	ctx, p.end = context.WithCancel(p.t.Context())
	p.t.Cleanup(func() {
		p.end()
		if p.ended != nil {
			<-p.ended
		}
	})
	go func() { p.ended <- p.manager.Start(ctx) }()
	return p
}

// states returns that of each range.
func (p *process) states() (all []string) {
	for _, r := range p.coordinator.Group().Ranges().Status().Ranges {
		all = append(all, r.State)
	}
	return all
}

// stop ends the process in an orderly way.
func (p *process) stop() {
	p.t.Helper()
	p.end()
	if err := <-p.ended; err != nil {
		p.t.Errorf("%s ended with %v", p.name, err)
	}
	p.ended = nil
}

// until waits for something.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
