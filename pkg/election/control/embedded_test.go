package control_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/control"
	"github.com/regent-project/regent/pkg/election/control/loop"
	"github.com/regent-project/regent/pkg/election/control/supervisor"
	"github.com/regent-project/regent/pkg/election/electiontest"
)

// These tests are of a program without our server: its informers are client-go's, its clients a fake clientset's, and
// what its constructors get is of its own making.

// kit is what the constructors get.
type kit struct {
	term election.Term
	pods *informer
}

// informer is client-go's, and counts its handlers.
type informer struct {
	cache.SharedIndexInformer
	handlers atomic.Int32
}

func (i *informer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	r, err := i.SharedIndexInformer.AddEventHandler(h)
	if err == nil {
		i.handlers.Add(1)
	}
	return r, err
}

func (i *informer) RemoveEventHandler(r cache.ResourceEventHandlerRegistration) error {
	i.handlers.Add(-1)
	return i.SharedIndexInformer.RemoveEventHandler(r)
}

// newPods returns an informer that runs until the test ends, of a number of pods.
func newPods(t *testing.T, n int) *informer {
	t.Helper()
	var all []k8sruntime.Object
	for i := range n {
		all = append(all, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("p%d", i), ResourceVersion: fmt.Sprint(i + 1)}})
	}
	factory := informers.NewSharedInformerFactory(fake.NewClientset(all...), 0)
	out := &informer{SharedIndexInformer: factory.Core().V1().Pods().Informer()}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	factory.Start(ctx.Done())
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	return out
}

// reconciler describes a controller that reconciles pods.
func reconciler(name string, reconcile func(context.Context, kit, cache.ObjectName) error) control.Descriptor[kit] {
	return control.Descriptor[kit]{Name: name, New: func(_ context.Context, k kit) (control.Controller, error) {
		l := loop.New(name, 2, func(ctx context.Context, key cache.ObjectName) error { return reconcile(ctx, k, key) })
		loop.Watch(l, k.pods, func(p *corev1.Pod) []cache.ObjectName { return []cache.ObjectName{cache.MetaObjectToName(p)} })
		return l, nil
	}}
}

// replica is a program that leads with controllers until the test ends.
type replica struct {
	mu     sync.Mutex
	events []supervisor.Event
}

func (r *replica) take(e supervisor.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// told reports whether there was an event of a type whose controller or error names a controller.
func (r *replica) tells(of supervisor.EventType, controller string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.events, func(e supervisor.Event) bool {
		return e.Type == of && (e.Controller == controller || e.Controller == "" && strings.Contains(e.Err.Error(), controller))
	})
}

// start starts a replica. stop returns when it has ended.
func start(t *testing.T, host string, store *electiontest.Store, pods *informer, policy control.Policy, set ...control.Descriptor[kit]) (r *replica, stop func()) {
	t.Helper()
	r = &replica{}
	registry, err := control.NewRegistry(set...)
	if err != nil {
		t.Fatal(err)
	}
	client := store.Client()
	cfg := election.DefaultConfig()
	cfg.Namespace, cfg.Name, cfg.Replica, cfg.Client = "default", "embedded", host, client
	elector, err := election.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	leader, err := supervisor.NewLeader(supervisor.Config{
		DrainTimeout: cfg.EffectiveDrainTimeout(), Policies: control.Policies{Default: policy}, OnEvent: r.take,
	}, registry)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(t.Context()), logr.Discard()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := elector.Run(ctx, func(ctx context.Context, term election.Term) error {
			return leader.Lead(ctx, term, kit{term: term, pods: pods})
		}); !errors.Is(err, context.Canceled) {
			t.Errorf("the election of %s ended: %v", host, err)
		}
	}()
	return r, func() {
		cancel()
		<-ended
		client.Wait()
	}
}

// until waits for something, in the test's time.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not happen that %s", what)
		}
	}
}

// keyCounter counts keys by epoch.
type keyCounter struct {
	mu   sync.Mutex
	keys map[int64]map[cache.ObjectName]int
}

func (c *keyCounter) reconcile(_ context.Context, k kit, key cache.ObjectName) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys == nil {
		c.keys = map[int64]map[cache.ObjectName]int{}
	}
	if c.keys[k.term.Epoch()] == nil {
		c.keys[k.term.Epoch()] = map[cache.ObjectName]int{}
	}
	c.keys[k.term.Epoch()][key]++
	return nil
}

// in returns how many keys were reconciled in a term, and how many terms there were.
func (c *keyCounter) in(epoch int64) (keys, terms int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.keys[epoch]), len(c.keys)
}

// goroutines counts those of the bubble. Others of the process come and go, such as those that run cleanups of memory.
func goroutines() int {
	for size := 1 << 20; ; size *= 2 {
		stacks := make([]byte, size)
		if n := runtime.Stack(stacks, true); n < size {
			return bytes.Count(stacks[:n], []byte(", synctest bubble "))
		}
	}
}

func TestAHundredTermsLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods, terms = 50, 100
		inf, store := newPods(t, pods), electiontest.NewStore("embedded")
		until(t, "the informer is synced", inf.HasSynced)
		synctest.Wait()
		before := goroutines()
		var seen keyCounter
		_, stop := start(t, "a", store, inf, control.Restart, reconciler("counts", seen.reconcile), reconciler("idle", (&keyCounter{}).reconcile))
		during := 0
		for term := 1; term <= terms; term++ {
			var epoch int64
			until(t, "a term reconciles all pods", func() bool {
				if lease := store.Lease(); lease != nil && lease.Spec.LeaseTransitions != nil {
					epoch = int64(*lease.Spec.LeaseTransitions)
				}
				keys, _ := seen.in(epoch)
				return keys == pods
			})
			synctest.Wait()
			if now := goroutines(); term == 3 {
				during = now
			} else if term == terms && now > during {
				t.Errorf("%d goroutines in term %d, %d in the third", now, term, during)
			}
			if n := inf.handlers.Load(); n != 2 {
				t.Fatalf("%d handlers in term %d, want one of each controller", n, term)
			}
			store.Take("thief", time.Hour)
			until(t, "the handlers are removed", func() bool { return inf.handlers.Load() == 0 })
			store.Free()
		}
		stop()
		if _, n := seen.in(0); n < terms {
			t.Errorf("%d terms, want %d", n, terms)
		}
		until(t, "the goroutines are gone", func() bool { return goroutines() <= before })
		if n := inf.handlers.Load(); n != 0 {
			t.Errorf("%d handlers left", n)
		}
	})
}

func TestAStandbyConstructsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf, store := newPods(t, 5), electiontest.NewStore("embedded")
		until(t, "the informer is synced", inf.HasSynced)
		var constructed atomic.Int32
		some := reconciler("some", (&keyCounter{}).reconcile)
		counts := control.Descriptor[kit]{Name: "some", New: func(ctx context.Context, k kit) (control.Controller, error) {
			constructed.Add(1)
			return some.New(ctx, k)
		}}
		store.Take("another", time.Hour)
		synctest.Wait()
		_, stop := start(t, "a", store, inf, control.Restart, counts)
		time.Sleep(time.Minute)
		synctest.Wait()
		first := goroutines()
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if n, now := constructed.Load(), goroutines(); n != 0 || now > first || inf.handlers.Load() != 0 {
			t.Errorf("a standby has constructed %d controllers, has %d goroutines after half an hour, %d at first, and %d handlers", n, now, first, inf.handlers.Load())
		}
		store.Free()
		until(t, "it leads", func() bool { return constructed.Load() == 1 })
		stop()
	})
}

func TestAPanicIsNamedAndTheTermGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf, store := newPods(t, 5), electiontest.NewStore("embedded")
		var panicked atomic.Bool
		var works, others keyCounter
		r, stop := start(t, "a", store, inf, control.Restart, reconciler("brittle", func(ctx context.Context, k kit, key cache.ObjectName) error {
			if !panicked.Swap(true) {
				panic("boom")
			}
			return works.reconcile(ctx, k, key)
		}), reconciler("sound", others.reconcile))
		until(t, "the controller works after its panic", func() bool { keys, _ := works.in(1); return keys == 5 })
		stop()
		if !r.tells(supervisor.ControllerFailed, "brittle") || r.tells(supervisor.ControllerFailed, "sound") {
			t.Errorf("told: %+v", r.events)
		}
		if p, ok := errors.AsType[*control.Panic](r.events[0].Err); !ok || !strings.HasPrefix(p.Where, "reconcile of default/p") || len(p.Stack) == 0 {
			t.Errorf("told: %v", r.events[0].Err)
		}
		if _, terms := works.in(0); terms != 1 {
			t.Errorf("%d terms: a panic has ended the first", terms)
		}
		if others.keys[1][cache.ObjectName{Namespace: "default", Name: "p0"}] != 1 {
			t.Error("the other controller has noticed the restart")
		}
	})
}

func TestAControllerThatHangsIsNamedAndItsReplicaDoesNotLeadUntilItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf, store := newPods(t, 1), electiontest.NewStore("embedded")
		release := make(chan struct{})
		var hung atomic.Int32
		r, stop := start(t, "a", store, inf, control.Restart, reconciler("hangs", func(context.Context, kit, cache.ObjectName) error {
			hung.Add(1)
			<-release // does not look at its context
			return nil
		}))
		until(t, "it hangs", func() bool { return hung.Load() == 1 })
		store.Take("thief", time.Hour)
		until(t, "it is named", func() bool { return r.tells(supervisor.ControllerLate, "hangs") })
		store.Free()
		time.Sleep(10 * time.Minute)
		if holder := store.Holder(); holder != "" || hung.Load() != 1 {
			t.Errorf("%q leads while a controller of its last term runs", holder)
		}
		close(release)
		until(t, "the replica leads again", func() bool { return store.Holder() != "" && hung.Load() == 2 })
		stop()
		if n := inf.handlers.Load(); n != 0 {
			t.Errorf("%d handlers left", n)
		}
	})
}

// Lead takes the drain timeout from the term, so that who is late is named when the replica is quarantined for it.
func TestLeadNamesALateControllerAfterTheDrainTimeoutOfTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, release := electiontest.NewStore("embedded"), make(chan struct{})
		var late atomic.Bool
		logger := funcr.New(func(_, args string) {
			if strings.Contains(args, "Controller is late") && strings.Contains(args, `"controller"="hangs"`) {
				late.Store(true)
			}
		}, funcr.Options{})
		client := store.Client()
		cfg := election.DefaultConfig()
		cfg.Namespace, cfg.Name, cfg.Replica, cfg.Client, cfg.DrainTimeout = "default", "embedded", "a", client, 2*time.Second
		elector, err := election.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var began atomic.Int32
		hangs := control.Descriptor[election.Term]{Name: "hangs", New: func(context.Context, election.Term) (control.Controller, error) {
			return control.Func(func(context.Context) error {
				began.Add(1)
				<-release // it does not look at its context
				return nil
			}), nil
		}}
		ctx, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(t.Context()), logger))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = elector.Run(ctx, supervisor.Lead(hangs))
		}()
		until(t, "it leads", func() bool { return began.Load() == 1 })
		store.Take("thief", time.Hour)
		synctest.Wait()
		time.Sleep(cfg.DrainTimeout - time.Millisecond)
		if synctest.Wait(); late.Load() {
			t.Error("the controller is late before the drain timeout")
		}
		time.Sleep(time.Second)
		if synctest.Wait(); !late.Load() {
			t.Error("the controller is not named")
		}
		cancel()
		close(release)
		<-ended
		client.Wait()
	})
}

func TestAControllerThatNoReplicaCanRunDoesNotKeepThemFromLeading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf, store := newPods(t, 1), electiontest.NewStore("embedded")
		var works keyCounter
		set := []control.Descriptor[kit]{
			{Name: "poison", New: func(context.Context, kit) (control.Controller, error) { return nil, errors.New("poisoned") }},
			reconciler("sound", works.reconcile),
		}
		a, stopA := start(t, "a", store, inf, control.StepDown, set...)
		b, stopB := start(t, "b", store, inf, control.StepDown, set...)
		until(t, "one leads on without it", func() bool {
			return a.tells(supervisor.TermTolerates, "poison") || b.tells(supervisor.TermTolerates, "poison")
		})
		epoch := *store.Lease().Spec.LeaseTransitions
		time.Sleep(5 * time.Minute)
		if now := *store.Lease().Spec.LeaseTransitions; now != epoch || store.Holder() == "" {
			t.Errorf("epoch %d was followed by %d: it should go on for %v", epoch, now, supervisor.DefaultOfferAfter)
		}
		if keys, _ := works.in(int64(epoch)); keys != 1 {
			t.Error("the other controller does not work")
		}
		stopA()
		stopB()
	})
}

func TestLeadRefusesFaultyDescriptors(t *testing.T) {
	defer func() {
		if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), `"x" is registered twice`) {
			t.Errorf("recovered %v", err)
		}
	}()
	d := control.Descriptor[election.Term]{Name: "x", New: func(context.Context, election.Term) (control.Controller, error) { return nil, nil }}
	supervisor.Lead(d, d)
}
