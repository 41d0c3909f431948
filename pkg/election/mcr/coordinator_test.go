package mcr_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mccontroller "sigs.k8s.io/multicluster-runtime/pkg/controller"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/election/leader"
	"github.com/regent-project/regent/pkg/election/mcr"
)

// records returns a reconciler that takes a while, and says in the ledger where this process works.
func (l *ledger) records(who string) mcreconcile.Func {
	return func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
		l.begin(req.ClusterName, who)
		defer l.end(req.ClusterName, who)
		select { // it works for a while, so that others have the time to work beside it
		case <-ctx.Done():
		case <-time.After(2 * time.Millisecond):
		}
		return reconcile.Result{RequeueAfter: 10 * time.Millisecond}, ctx.Err()
	}
}

// works reports whether each cluster has been worked in, since a ledger of before, by one of these processes.
func (l *ledger) works(in []multicluster.ClusterName, since map[multicluster.ClusterName]map[string]int, who ...string) bool {
	for _, name := range in {
		now, some := l.by(name), false
		for _, w := range who {
			some = some || now[w] > since[name][w]
		}
		if !some {
			return false
		}
	}
	return true
}

func (l *ledger) all(in []multicluster.ClusterName) map[multicluster.ClusterName]map[string]int {
	now := map[multicluster.ClusterName]map[string]int{}
	for _, name := range in {
		now[name] = l.by(name)
	}
	return now
}

// I17: all processes work, each cluster has one worker at a time, and what a process leaves is worked at by others.
func TestEachClusterHasOneWorkerAndAllWork(t *testing.T) {
	s, l, clusters := newServer(t), newLedger(t), names(40)
	var processes []*process
	for _, name := range []string{"a", "b", "c"} {
		p := s.newProcess(t, name).controls(l.records(name)).start()
		p.provider.add(t, clusters...)
		processes = append(processes, p)
	}
	until(t, "each cluster is worked in", func() bool { return l.works(clusters, nil, "a", "b", "c") })
	until(t, "all have their share", func() bool {
		for _, p := range processes {
			for _, r := range p.coordinator.Group().Ranges().Status().Processes {
				if r.Leads < 2 {
					return false
				}
			}
		}
		return true
	})
	before := l.all(clusters)
	until(t, "each cluster is worked in then", func() bool { return l.works(clusters, before, "a", "b", "c") })
	processes[0].stop()
	before = l.all(clusters)
	until(t, "each is worked in by those that are left", func() bool { return l.works(clusters, before, "b", "c") })
	for _, name := range clusters {
		if n := l.by(name)["a"]; n > before[name]["a"] {
			t.Errorf("a works in %s after its end", name)
		}
	}
	processes[1].stop()
	processes[2].stop()
}

// A range is released when what runs in it has returned, and that is told to.
func TestARangeIsReleasedWhenItsReconcilesHaveReturned(t *testing.T) {
	s, l := newServer(t), newLedger(t)
	var told atomic.Bool
	running, finish := make(chan struct{}, 100), make(chan struct{})
	a := s.newProcess(t, "a").controls(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
		l.begin(req.ClusterName, "a")
		defer l.end(req.ClusterName, "a")
		running <- struct{}{}
		<-ctx.Done()
		told.Store(errors.Is(context.Cause(ctx), election.StepDown))
		<-finish
		return reconcile.Result{}, nil
	}).start()
	a.provider.add(t, "one")
	<-running
	b := s.newProcess(t, "b").controls(l.records("b")).start()
	b.provider.add(t, "one")
	until(t, "b is there", func() bool { return len(a.coordinator.Group().Ranges().Status().Processes) == 2 })
	for k, r := range a.coordinator.Group().Ranges().Status().Ranges {
		if r.State == "leading" {
			if _, err := a.coordinator.Group().Ranges().StepDown(k, "to see whether it waits", "b"); err != nil {
				t.Fatal(err)
			}
		}
	}
	until(t, "the reconcile is told", told.Load)
	// a moment of draining would be seen in any case
	until(t, "the term waits for it, longer than it should", func() bool { return slices.Contains(a.states(), "quarantined") })
	if n := l.by("one")["b"]; n != 0 {
		t.Errorf("b has worked %d times while a did", n)
	}
	close(finish)
	until(t, "b works", func() bool { return l.by("one")["b"] > 0 })
	a.stop()
	b.stop()
}

// What is in the queue of a controller when its term ends is dropped.
func TestWhatIsQueuedIsDroppedWhenTheTermIsOver(t *testing.T) {
	s, l := newServer(t), newLedger(t)
	c, err := mcr.New(s.config, config("x"), mcr.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := mcr.Bind[mcreconcile.Request](c, l.records("nobody"))
	if result, err := r.Reconcile(t.Context(), request("one", 0)); err != nil || result != (reconcile.Result{}) || l.by("one") != nil {
		t.Errorf("what this process does not lead is reconciled: %v, %v, %v", result, err, l.by("one"))
	}
	if _, err := r.Reconcile(t.Context(), request("", 0)); err != nil || l.by("")["nobody"] != 1 {
		t.Errorf("the local cluster belongs to every process: %v, %v", err, l.by(""))
	}
}

// A cluster that goes and comes again is engaged again, and one that cannot be engaged at first later.
func TestClustersComeAndGo(t *testing.T) {
	s, l := newServer(t), newLedger(t)
	p := s.newProcess(t, "a").controls(l.records("a"))
	f := &failing{Coordinator: p.coordinator}
	p.coordinator.AddAware(f)
	p.start()
	p.provider.add(t, "one", "two")
	until(t, "both are worked in", func() bool { return l.works([]multicluster.ClusterName{"one", "two"}, nil, "a") })
	until(t, "what failed at first is told again", func() bool { return f.engaged.Load() >= 2 })
	p.provider.remove("one")
	until(t, "what is aware hears that one has gone", func() bool { return f.ended.Load() > 0 })
	told := f.engaged.Load()
	p.provider.add(t, "one")
	until(t, "one is told of again", func() bool { return f.engaged.Load() > told })
	p.stop()
}

// A cluster in which a controller cannot be engaged holds up no other for longer than Options.EngageTimeout.
func TestAClusterThatHangsDoesNotHoldUpOthers(t *testing.T) {
	s, l, clusters := newServer(t), newLedger(t), names(20)
	p := s.newProcess(t, "a").controls(l.records("a"))
	h := &hanging{at: clusters[7]}
	p.coordinator.AddAware(h)
	p.start()
	p.provider.add(t, clusters...)
	until(t, "all others are engaged, and that one is tried again", func() bool { return h.engaged.Load() == int32(len(clusters)-1) && h.hung.Load() > 1 })
	p.stop()
}

// hanging is aware, and hangs in one cluster.
type hanging struct {
	at            multicluster.ClusterName
	engaged, hung atomic.Int32
}

func (h *hanging) Engage(ctx context.Context, name multicluster.ClusterName, _ cluster.Cluster) error {
	if name == h.at {
		h.hung.Add(1)
		<-ctx.Done()
		return context.Cause(ctx)
	}
	h.engaged.Add(1)
	return nil
}

// failing is aware, and fails at first.
type failing struct {
	*mcr.Coordinator
	calls, engaged, ended atomic.Int32
}

func (f *failing) Engage(ctx context.Context, _ multicluster.ClusterName, _ cluster.Cluster) error {
	if f.calls.Add(1) == 1 {
		return errors.New("not now")
	}
	f.engaged.Add(1)
	context.AfterFunc(ctx, func() { f.ended.Add(1) })
	return nil
}

// other is a Request of a program's own.
type other struct{ mcreconcile.Request }

func (o other) Cluster() multicluster.ClusterName { return o.ClusterName }
func (o other) WithCluster(name multicluster.ClusterName) other {
	o.ClusterName = name
	return o
}

// A controller whose reconciles cannot be bound would work beside another process: then nothing starts.
func TestAControllerWithARequestOfItsOwnHasToBeBound(t *testing.T) {
	s := newServer(t)
	nothing := reconcile.TypedFunc[other](func(context.Context, other) (reconcile.Result, error) { return reconcile.Result{}, nil })
	for _, binds := range []bool{false, true} {
		p := s.newProcess(t, "a")
		var do reconcile.TypedReconciler[other] = nothing
		if binds {
			do = mcr.Bind(p.coordinator, do)
		}
		options := controller.TypedOptions[other]{Reconciler: do, SkipNameValidation: ptr.To(true)}
		if _, err := mccontroller.NewTyped("unusual", p.manager, options); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.manager.Start(ctx) }()
		if binds {
			until(t, "it leads", func() bool { return len(s.store.Others()) > 1 })
			cancel()
		}
		err := <-ended
		cancel()
		if !binds && (err == nil || !strings.Contains(err.Error(), "mcr.Bind") || !strings.Contains(err.Error(), "unusual")) || binds && err != nil {
			t.Errorf("bound %v: %v", binds, err)
		}
	}
}

// Whatever a reconcile writes belongs to its term, and a write that is refused ends that.
func TestReconcilesCarryTheTokenOfTheirTerm(t *testing.T) {
	s := newServer(t)
	s.store.Fence()
	var tokens sync.Map
	var refused atomic.Bool
	p := s.newProcess(t, "a", func(cfg *leader.Config) { cfg.Fenced = true }).controls(func(ctx context.Context, req mcreconcile.Request) (reconcile.Result, error) {
		tokens.Store(fence.From(ctx), req.ClusterName)
		if refused.CompareAndSwap(false, true) {
			return reconcile.Result{}, fmt.Errorf("write: %w", fence.NewRefusal("a test"))
		}
		return reconcile.Result{}, nil
	}).start()
	p.provider.add(t, "one")
	until(t, "another term has begun", func() bool {
		n := 0
		tokens.Range(func(token, _ any) bool {
			if of := token.(fence.Token); of.Epoch == 0 || !strings.HasPrefix(of.Name, "example-") {
				t.Errorf("a reconcile has token %+v", of)
			}
			n++
			return true
		})
		return n == 2
	})
	p.stop()
}
