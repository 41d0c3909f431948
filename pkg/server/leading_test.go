package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/controllers"
	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/etcd"
	"github.com/regent-project/regent/pkg/server/loopback"
	"github.com/regent-project/regent/pkg/server/routing"
)

// acting is a controller that is one function.
type acting func(ctx context.Context) error

func (a acting) Run(ctx context.Context) error { return a(ctx) }

// withController makes cfg a candidate whose only controller is the given one. Its timings are short for a lease, and
// long for a busy machine: no term here is to end for want of a renewal.
func withController(t *testing.T, cfg Config, run func(ctx context.Context, deps controllers.Deps) error) Config {
	t.Helper()
	var err error
	cfg.Registry, err = controllers.NewRegistry(controllers.Descriptor{Name: "acting", New: func(_ context.Context, deps controllers.Deps) (controllers.Controller, error) {
		return acting(func(ctx context.Context) error { return run(ctx, deps) }), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	cfg.EnableLeaderElection = true
	cfg.Policies.Default = controllers.StepDown // a failure ends the term
	cfg.Election.LeaseDuration, cfg.Election.RenewDeadline, cfg.Election.RetryPeriod = 8*time.Second, 6*time.Second, 200*time.Millisecond
	return cfg
}

// Fact 8 of docs/CLIENT-GO.md: controllers and the lease on one rate-limited client make a busy leader lose its own
// lease. Here the lease has a client and connections of its own, and no client waits for a limit. (At client-go's 5
// requests a second a renewal would wait behind 40 writers for 7 s, which is longer than the renew deadline. So that
// they do not keep all CPUs busy, each rests between two writes.)
func TestABusyLeaderKeepsItsLease(t *testing.T) {
	t.Parallel() // most of it is waiting
	const writers, rest = 40, 500 * time.Millisecond
	written := make(chan struct{}, 1)
	terms := make(chan int64, 100)
	cfg := withController(t, config(t, t.TempDir()), func(ctx context.Context, deps controllers.Deps) error {
		terms <- deps.Token.Epoch
		ctx = clusters.With(ctx, clusters.SystemAdmin)
		var all sync.WaitGroup
		for i := range writers {
			all.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					_, err := deps.Clients.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(ctx, &corev1.ConfigMap{
						ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("busy-%d-%d", i, n)},
					}, metav1.CreateOptions{})
					if err == nil {
						select {
						case written <- struct{}{}:
						default:
						}
					}
					select {
					case <-ctx.Done():
					case <-time.After(rest):
					}
				}
			})
		}
		all.Wait()
		return nil
	})
	r := startReplica(t, cfg)
	// Longer than the lease can go without a renewal.
	for end := time.After(9 * time.Second); ; {
		select {
		case <-written:
			continue
		case <-end:
		}
		break
	}
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
	if n := len(terms); n != 1 {
		t.Errorf("%d terms, want one that lasts", n)
	}
}

// I4, and fact 9 of docs/CLIENT-GO.md: no health check depends on who leads.
func TestNoHealthCheckDependsOnTheElection(t *testing.T) {
	terms := make(chan struct{}, 100)
	r := startReplica(t, withController(t, config(t, t.TempDir()), func(context.Context, controllers.Deps) error {
		terms <- struct{}{}
		return errors.New("cannot do its work")
	}))
	for range 2 { // the second term comes after a step down and a back-off
		for waiting := true; waiting; {
			select {
			case <-terms:
				waiting = false
			case <-time.After(10 * time.Millisecond):
			}
			for _, path := range []string{"/readyz", "/livez"} {
				if got := r.get(t, path); got != http.StatusOK {
					t.Fatalf("%s: %d", path, got)
				}
			}
		}
	}
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
}

func TestAReplicaThatCannotStopNamesTheController(t *testing.T) {
	t.Parallel() // most of it is waiting
	hangs, returns := make(chan struct{}), make(chan struct{})
	cfg := withController(t, config(t, t.TempDir()), func(context.Context, controllers.Deps) error {
		close(hangs)
		<-returns
		return nil
	})
	cfg.Election.DrainTimeout = 100 * time.Millisecond
	cfg.ShutdownTimeout = 2 * time.Second
	r := startReplica(t, cfg)
	<-hangs
	err := r.stop(t)
	close(returns)
	defer joinLate(t, *cfg.EmbeddedEtcd)
	late, ok := errors.AsType[*LateError](err)
	if !ok || !slices.Contains(late.Late, `controller "acting"`) || !slices.Contains(late.Late, "election") {
		t.Errorf("Run returned %v, want a LateError that names the controller", err)
	}
}

// joinLate returns when the last part has ended of a replica whose Run did not wait for it: its etcd.
func joinLate(t *testing.T, cfg etcd.Config) {
	t.Helper()
	for {
		again, err := etcd.Start(t.Context(), cfg)
		if err == nil {
			again.Close()
			return
		}
		if _, ok := errors.AsType[*etcd.InUseError](err); !ok {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestTheShutdownTimeoutHasRoomForTheDrain(t *testing.T) {
	cfg := config(t, t.TempDir())
	cfg.Election.LeaseDuration, cfg.Election.RenewDeadline, cfg.Election.DrainTimeout = 10*time.Minute, 5*time.Minute, 4*time.Minute
	s, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.generic.SecureServing.Listener.Close() }()
	if got := s.cfg.ShutdownTimeout; got <= cfg.Election.EndTimeout() {
		t.Errorf("the shutdown timeout is %v, a term may take %v to end", got, cfg.Election.EndTimeout())
	}
	if cfg.Election = election.DefaultConfig(); (cfg.Election.EndTimeout() + shutdownAllowance).Round(time.Second) != 40*time.Second {
		t.Errorf("by default it is %v, the documentation says 40 s", cfg.Election.EndTimeout()+shutdownAllowance)
	}
}

// I1: what outlives its term cannot write with the term's clients.
func TestATermsClientsStopWorkingWithIt(t *testing.T) {
	kept := make(chan controllers.Clients, 100)
	r := startReplica(t, withController(t, config(t, t.TempDir()), func(_ context.Context, deps controllers.Deps) error {
		kept <- deps.Clients
		return errors.New("ends the term")
	}))
	first := <-kept
	<-kept // the next term has begun, so the first has ended
	_, err := first.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).List(clusters.With(t.Context(), clusters.SystemAdmin), metav1.ListOptions{})
	if !errors.Is(err, loopback.ErrClosed) {
		t.Errorf("a client of a term that has ended: %v", err)
	}
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
}

// I7, where every replica is poisoned: the shard has a leader all the same, which offers the lease from time to time.
// Without election the replica is its own predecessor.
func TestAPoisonedLoneReplicaLeadsOnWithoutWhatItCannotRun(t *testing.T) {
	t.Parallel() // most of it is waiting
	for name, elected := range map[string]bool{"elected": true, "without election": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := withController(t, config(t, t.TempDir()), func(context.Context, controllers.Deps) error { return errors.New("poisoned") })
			cfg.EnableLeaderElection = elected
			var err error
			terms := make(chan time.Time, 100)
			cfg.Registry, err = cfg.Registry.With(controllers.Descriptor{Name: "sound", New: func(context.Context, controllers.Deps) (controllers.Controller, error) {
				terms <- time.Now() // and not when this test gets to it
				return acting(func(ctx context.Context) error { <-ctx.Done(); return nil }), nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			cfg.offerAfter = 2 * time.Second
			r := startReplica(t, cfg)
			defer func() { _ = r.stop(t) }()
			// The time runs before the term's controllers are made. On a busy machine that may come later
			// in one term than in the next.
			const late = time.Second
			<-terms          // steps down
			began := <-terms // leads on
			// It has offered the lease, and nobody took it: it leads on again.
			if lasted := (<-terms).Sub(began); lasted < cfg.offerAfter-late {
				t.Errorf("the second term lasted %v, want more than %v", lasted, cfg.offerAfter)
			}
			if lasted := (<-terms).Sub(began); lasted < 2*cfg.offerAfter-late {
				t.Errorf("two terms that lead on lasted %v, want more than %v", lasted, 2*cfg.offerAfter)
			}
		})
	}
}

// The process was asked to stop before it failed: what failed is told all the same.
func TestAFailureWhileStoppingCountsToo(t *testing.T) {
	began := make(chan struct{})
	boom := fmt.Errorf("cannot stop in order: %w", controllers.ErrExit)
	r := startReplica(t, withController(t, config(t, t.TempDir()), func(ctx context.Context, _ controllers.Deps) error {
		close(began)
		<-ctx.Done()
		return boom
	}))
	<-began
	if err := r.stop(t); !errors.Is(err, boom) {
		t.Errorf("Run returned %v", err)
	}
}

func TestAStepDownIsForMastersAndForLeaders(t *testing.T) {
	began := make(chan int64, 10)
	r := startReplica(t, withController(t, config(t, t.TempDir()), func(ctx context.Context, deps controllers.Deps) error {
		began <- deps.Token.Epoch
		<-ctx.Done()
		return nil
	}))
	defer func() { _ = r.stop(t) }()
	if got := r.get(t, routing.StepDownPath); got != http.StatusUnauthorized {
		t.Errorf("a stranger got %d", got)
	}
	admin := r.admin(t)
	first := <-began
	for _, c := range []struct {
		name, verb, body string
		code             int
		says             string
	}{
		{"by GET", http.MethodGet, "", http.StatusMethodNotAllowed, "GET"},
		{"with a body that is not JSON", http.MethodPost, "because", http.StatusBadRequest, "must be empty"},
		{"with a long body", http.MethodPost, `{"reason": "` + strings.Repeat("x", 4<<10) + `"}`, http.StatusRequestEntityTooLarge, "4096 bytes"},
		{"with a reason", http.MethodPost, `{"reason": "to see another lead"}`, http.StatusOK, fmt.Sprintf(`"epoch":%d`, first)},
	} {
		var code int
		body, err := admin.Verb(c.verb).AbsPath(routing.StepDownPath).Body([]byte(c.body)).Do(t.Context()).StatusCode(&code).Raw()
		if code != c.code || !strings.Contains(string(body)+fmt.Sprint(err), c.says) {
			t.Errorf("%s: %d %s %v, want %d with %s", c.name, code, body, err, c.code, c.says)
		}
	}
	// One that a term decided on which is over: it would end the term of its successor.
	stale, err := fence.Token{Cluster: clusters.SystemAdmin, Namespace: "kube-system", Name: "regent-controllers", UID: "u", Holder: "h", Epoch: first}.HeaderValue()
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.Post().AbsPath(routing.StepDownPath).SetHeader(fence.Header, stale).Do(t.Context()).Error(); !fence.IsFenced(err) {
		t.Errorf("with the token of a term that is over: %v", err)
	}
	if second := <-began; second != first+1 {
		t.Errorf("the next term is %d, after %d", second, first)
	}
	reasons := map[string]string{}
	for len(reasons) < 3 {
		list, err := r.adminIn(t, clusters.SystemAdmin).CoreV1().Events(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Items {
			if e.InvolvedObject.Name == "regent-controllers" && e.InvolvedObject.UID != "" {
				reasons[e.Reason+fmt.Sprint(e.Count)] = e.Message
			}
		}
		if len(list.Items) >= 3 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !strings.Contains(reasons[election.Ended+"1"], "to see another lead") || reasons[election.Acquired+"1"] == "" {
		t.Errorf("Events: %v", reasons)
	}
}
