package perterm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/internal/undone"
	"github.com/regent-project/regent/pkg/election/join"
	"github.com/regent-project/regent/pkg/election/ranges"
)

// Manager is the manager of one term. Its Start is called for it.
type Manager struct {
	manager.Manager
	// Term is the one that it runs in.
	Term election.Term
	// Range is the part of all keys for which the term leads: of Add, all of them.
	Range ranges.Range
	// Metrics registers collectors at controller-runtime's registry for as long as the term lasts, so that those of
	// the next term can have the same names. With several ranges they get a label, range, because those of other
	// ranges are there at the same time.
	Metrics prometheus.Registerer

	t *tenancy
}

// Add adds a runnable. If it fails, or panics, when it runs, the term ends at once, and not the process. What says that
// it needs no leader election is refused: every replica must run that.
func (m *Manager) Add(r manager.Runnable) error {
	r, err := m.t.add(r)
	if err != nil {
		return err
	}
	return m.Manager.Add(r)
}

// errProcess is wrapped in the errors of what the manager of a term refuses.
var errProcess = errors.New("it must work on every replica, whether it leads or not: give it to the manager of the process")

// AddHealthzCheck returns an error.
func (m *Manager) AddHealthzCheck(name string, _ healthz.Checker) error {
	return fmt.Errorf("health check %q: %w", name, errProcess)
}

// AddReadyzCheck returns an error.
func (m *Manager) AddReadyzCheck(name string, _ healthz.Checker) error {
	return fmt.Errorf("readiness check %q: %w", name, errProcess)
}

// AddMetricsServerExtraHandler returns an error.
func (m *Manager) AddMetricsServerExtraHandler(path string, _ http.Handler) error {
	return fmt.Errorf("metrics handler %s: %w", path, errProcess)
}

// GetWebhookServer panics, and so ends the term.
func (m *Manager) GetWebhookServer() webhook.Server { panic(fmt.Errorf("a webhook: %w", errProcess)) }

// tenancy is what one term has.
type tenancy struct {
	process manager.Manager
	options Options
	loan    *loan
	scope   *join.Scope
	of      ranges.Range
	term    election.Term
	ctx     context.Context // of the term
}

// fail ends the term at once, for that reason.
func (t *tenancy) fail(err error) { election.Fail(t.ctx, err) }

func (t *tenancy) manager() (*Manager, error) {
	config, err := t.config()
	if err != nil {
		return nil, err
	}
	o := manager.Options{
		Scheme:     t.process.GetScheme(),
		Controller: t.process.GetControllerOptions(),
		Logger:     t.logger(t.process.GetLogger()),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return t.process.GetRESTMapper(), nil
		},
		NewCache: func(*rest.Config, cache.Options) (cache.Cache, error) { return t.cache(), nil },
	}
	if o.Controller.Logger.GetSink() != nil {
		o.Controller.Logger = t.logger(o.Controller.Logger)
	}
	if t.options.Configure != nil {
		t.options.Configure(&o)
	}
	if o.NewClient == nil && !says(o.Client) {
		o.NewClient = t.newClient
	}
	o.BaseContext = t.base(o.BaseContext)
	// with the latter the manager would write to the scheme, which the process reads
	o.LeaderElection, o.LeaderElectionConfig = false, nil
	o.Metrics, o.HealthProbeBindAddress, o.PprofBindAddress = server.Options{BindAddress: "0"}, "0", "0"
	o.Controller.SkipNameValidation = ptr.To(true)        // names come again with each term
	o.GracefulShutdownTimeout = ptr.To(time.Duration(-1)) // who is late is the elector's concern
	m, err := manager.New(config, o)
	if err != nil {
		return nil, err
	}
	return &Manager{Manager: m, Term: t.term, Range: t.of, Metrics: &registerer{Registerer: t.registry(), scope: t.scope}, t: t}, nil
}

// registry returns where the metrics of the term are registered.
func (t *tenancy) registry() prometheus.Registerer {
	if t.of.Of == 1 {
		return metrics.Registry
	}
	return prometheus.WrapRegistererWith(prometheus.Labels{"range": strconv.Itoa(t.of.Index)}, metrics.Registry)
}

func (t *tenancy) logger(l logr.Logger) logr.Logger {
	if t.of.Of > 1 {
		l = l.WithValues("range", t.of.Index)
	}
	return l.WithValues("epoch", t.term.Epoch())
}

// owns returns which objects are the term's; nil if all are.
func (t *tenancy) owns() func(obj any) bool {
	if t.options.Key == nil || t.of.Of == 1 {
		return nil
	}
	return func(obj any) bool {
		if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		o, ok := obj.(client.Object)
		return !ok || t.of.Has(t.options.Key(o))
	}
}

// base returns the function that makes the context of runnables: it has the values of the term's, and before these
// those that the program gives.
func (t *tenancy) base(given manager.BaseContextFunc) manager.BaseContextFunc {
	return func() context.Context {
		if given == nil {
			return context.WithoutCancel(t.ctx)
		}
		return t.in(&values{given(), t.ctx})
	}
}

// values is a context with the values of another one besides.
type values struct {
	context.Context
	besides context.Context
}

// Value implements context.Context.
func (v *values) Value(key any) any {
	if value := v.Context.Value(key); value != nil {
		return value
	}
	return v.besides.Value(key)
}

// registerer unregisters at the end of the term what is registered in it.
type registerer struct {
	prometheus.Registerer
	scope *join.Scope

	undone undone.Undone // by collector
}

// Register implements prometheus.Registerer.
func (r *registerer) Register(c prometheus.Collector) error {
	err := r.Registerer.Register(c)
	if err == nil {
		r.undone.Keep(c, r.scope.OnEnd(func() { r.Registerer.Unregister(c) }))
	}
	return err
}

// Unregister implements prometheus.Registerer.
func (r *registerer) Unregister(c prometheus.Collector) bool {
	r.undone.Forget(c)
	return r.Registerer.Unregister(c)
}

// MustRegister implements prometheus.Registerer.
func (r *registerer) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

func isContextError(ctx context.Context, err error) bool {
	return err == nil || errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))
}
