package perterm_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/electiontest"
	"github.com/regent-project/regent/pkg/election/perterm"
	"github.com/regent-project/regent/pkg/election/ranges"
)

const rangesOfThem = 4

// shares has what processes have done that share ranges.
type shares struct {
	t *testing.T

	mu    sync.Mutex
	works map[string]string // who works at which object now
	of    map[string]map[int]bool
}

// setUp adds a controller that writes who has seen a ConfigMap.
func (s *shares) setUp(process string) func(m *perterm.Manager) error {
	return func(m *perterm.Manager) error {
		m.Metrics.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "perterm_test_work_" + process, Help: "Of each range."}))
		return ctrl.NewControllerManagedBy(m).Named("share").For(&corev1.ConfigMap{}).Complete(&sharer{s, m, process})
	}
}

type sharer struct {
	*shares
	m       *perterm.Manager
	process string
}

// Reconcile implements reconcile.Reconciler.
func (s *sharer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s.mu.Lock()
	if !s.m.Range.Has(req.Name) {
		s.t.Errorf("the term of range %v sees %s, which is of range %d", s.m.Range, req.Name, ranges.Of(req.Name, rangesOfThem))
	}
	if other := s.works[req.Name]; other != "" {
		s.t.Errorf("%s works at %s, and %s too", s.process, req.Name, other)
	}
	if s.of[s.process] == nil {
		s.of[s.process] = map[int]bool{}
	}
	s.works[req.Name], s.of[s.process][s.m.Range.Index] = s.process, true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.works, req.Name)
	}()
	var obj corev1.ConfigMap
	if err := s.m.GetClient().Get(ctx, req.NamespacedName, &obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if obj.Data["by"] == s.process {
		return ctrl.Result{}, nil
	}
	obj.Data = map[string]string{"by": s.process}
	return ctrl.Result{}, s.m.GetClient().Update(ctx, &obj)
}

func TestManagersLeadTheirShareAndSeeNothingElse(t *testing.T) {
	s, shelf, store := &shares{t: t, works: map[string]string{}, of: map[string]map[int]bool{}}, newShelf(t), electiontest.NewStore("example")
	names := map[int]string{}
	for n := 0; len(names) < rangesOfThem; n++ {
		name := fmt.Sprintf("c%d", n)
		if k := ranges.Of(name, rangesOfThem); names[k] == "" {
			names[k] = name
			shelf.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
		}
	}
	begin := func(name string) (stop func()) {
		cfg := election.DefaultConfig()
		cfg.Namespace, cfg.Name, cfg.Client, cfg.Cluster, cfg.Replica = "default", "example", store.Client(), "root", name
		cfg.LeaseDuration, cfg.RenewDeadline, cfg.RetryPeriod, cfg.DrainTimeout = 2*time.Second, time.Second, 100*time.Millisecond, 50*time.Millisecond
		group, err := ranges.New(ranges.Config{Election: cfg, Ranges: rangesOfThem})
		if err != nil {
			t.Fatal(err)
		}
		process := newProcess(t, shelf)
		if err := perterm.AddRanges(process, group, perterm.Options{Key: client.Object.GetName}, s.setUp(name)); err != nil {
			t.Fatal(err)
		}
		end := start(t, process)
		return func() { end(); group.Close() }
	}
	by := func() map[string]int {
		count := map[string]int{}
		for _, name := range names {
			count[shelf.look(name)["by"]]++
		}
		return count
	}
	stopA := begin("a")
	eventually(t, "one does all", func() bool { return by()["a"] == rangesOfThem })
	stopB := begin("b")
	eventually(t, "each has seen its share", func() bool { return by()["a"] == rangesOfThem/2 && by()["b"] == rangesOfThem/2 })
	stopA()
	eventually(t, "the other one does all", func() bool { return by()["b"] == rangesOfThem })
	stopB()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.of["a"]) != rangesOfThem || len(s.of["b"]) != rangesOfThem {
		t.Errorf("ranges with work: %v", s.of)
	}
}
