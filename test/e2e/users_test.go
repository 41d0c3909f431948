package e2e

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/test/e2e/harness"
)

const (
	// usersRate is how many writes, and how many reads, users make per second through each replica.
	usersRate = 5
	// usersPatience is how long they wait for an answer, which is how long the server works on one at most.
	usersPatience = 60 * time.Second
)

// users write and read all the time, through all replicas, however long answers take: a request begins when it is due,
// not when the one before it was answered. They try nothing again.
type users struct {
	t        *testing.T
	clients  []kubernetes.Interface
	stop     context.CancelFunc
	asking   sync.WaitGroup
	mu       sync.Mutex
	requests []request
	written  map[string]bool // names of what was written, by answers
	latest   string          // of these
}

// groupsOfUsers counts them: those of several groups write different names.
var groupsOfUsers atomic.Int64

// request is one of theirs.
type request struct {
	what  string
	began time.Time
	took  time.Duration
	err   error
}

// startUsers has users come, who go when the test ends, if not before.
func startUsers(t *testing.T, replicas ...*harness.Replica) *users {
	t.Helper()
	return startUsersIn(t, "root", replicas...)
}

// startUsersIn is startUsers in any cluster, through replicas or fronts.
func startUsersIn[E entrance](t *testing.T, cluster string, through ...E) *users {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	u := &users{t: t, stop: stop, written: map[string]bool{}}
	group := groupsOfUsers.Add(1)
	for _, r := range through {
		client := r.Kube(cluster)
		u.clients = append(u.clients, client)
		u.every(ctx, func(n int) {
			name := fmt.Sprintf("written-%s%d-%d", r.Name(), group, n)
			u.asking.Go(func() { u.write(client.CoreV1().RESTClient(), name) })
		})
		u.every(ctx, func(n int) {
			read := u.read
			if n%2 == 0 {
				read = u.list
			}
			u.asking.Go(func() { read(client.CoreV1().RESTClient()) })
		})
	}
	t.Cleanup(u.finish)
	return u
}

// every calls do until ctx ends, and counts.
func (u *users) every(ctx context.Context, do func(n int)) {
	u.asking.Go(func() {
		tick := time.NewTicker(time.Second / usersRate)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				do(n)
			}
		}
	})
}

func (u *users) write(client rest.Interface, name string) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := u.ask("write", func(ctx context.Context) error {
		return client.Post().Namespace(metav1.NamespaceDefault).Resource("configmaps").Body(cm).MaxRetries(0).Do(ctx).Error()
	})
	if err == nil {
		u.mu.Lock()
		u.written[name], u.latest = true, name
		u.mu.Unlock()
	}
}

// read reads what was written last, through whichever replica: a consistent read.
func (u *users) read(client rest.Interface) {
	u.mu.Lock()
	name := u.latest
	u.mu.Unlock()
	if name == "" {
		return
	}
	_ = u.ask("read", func(ctx context.Context) error {
		return client.Get().Namespace(metav1.NamespaceDefault).Resource("configmaps").Name(name).MaxRetries(0).Do(ctx).Error()
	})
}

// list lists what is few. The list, too, is a consistent read.
func (u *users) list(client rest.Interface) {
	_ = u.ask("list", func(ctx context.Context) error {
		return client.Get().Resource("namespaces").MaxRetries(0).Do(ctx).Error()
	})
}

func (u *users) ask(what string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), usersPatience)
	defer cancel()
	r := request{what: what, began: time.Now()}
	r.err = do(ctx)
	r.took = time.Since(r.began)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.requests = append(u.requests, r)
	return r.err
}

// finish has them go, and returns when the last has its answer.
func (u *users) finish() {
	u.stop()
	u.asking.Wait()
}

// between are the requests that began between two moments.
func (u *users) between(from, to time.Time) (some []request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range u.requests {
		if !r.began.Before(from) && r.began.Before(to) {
			some = append(some, r)
		}
	}
	return some
}

// mustFindWhatTheyWrote fails the test if a replica does not have what a user was told to be written, and tells of what
// went wrong.
func (u *users) mustFindWhatTheyWrote(t *testing.T) {
	t.Helper()
	for _, client := range u.clients {
		list, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		there := map[string]bool{}
		for _, cm := range list.Items {
			there[cm.Name] = true
		}
		for name := range u.written {
			if !there[name] {
				t.Errorf("%s was written, and is not there", name)
			}
		}
	}
	u.tell(t)
}

// tell tells of each kind of request, and of each error once.
func (u *users) tell(t *testing.T) {
	t.Helper()
	kinds, errs := map[string][]request{}, map[string]int{}
	for _, r := range u.requests {
		kinds[r.what] = append(kinds[r.what], r)
		if r.err != nil {
			errs[r.what+": "+anyName.ReplaceAllString(r.err.Error(), "written-...")]++
		}
	}
	for what, of := range kinds {
		times := durations(of)
		t.Logf("%-5s %d, %d failed, p50 %v, p99 %v, longest %v", what, len(of), failures(of), quantile(times, 0.5), quantile(times, 0.99), quantile(times, 1))
	}
	for err, n := range errs {
		t.Logf("%d times: %s", n, err)
	}
}

// anyName is that of anything they write.
var anyName = regexp.MustCompile(`written-\w+-\d+`)

func failures(of []request) (n int) {
	for _, r := range of {
		if r.err != nil {
			n++
		}
	}
	return n
}

// durations are sorted.
func durations(of []request) (all []time.Duration) {
	for _, r := range of {
		all = append(all, r.took)
	}
	slices.Sort(all)
	return all
}

// quantile is that of sorted durations, rounded for readers.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)].Round(time.Millisecond)
}

// Replicas are probed as often as the chart has it.
const (
	probePeriod = 2 * time.Second
	// probeTimeout is Kubernetes' default: longer answers are told. A busy machine makes them so, too, and that
	// alone leaves a replica ready here.
	probeTimeout = time.Second
	// probePatience is for an answer at all, and probeThreshold how many in a row that are wrong, or none, make a
	// replica unready.
	probePatience  = 10 * time.Second
	probeThreshold = 3
)

// probes ask replicas whether they are ready.
type probes struct {
	stop    context.CancelFunc
	probing sync.WaitGroup

	mu      sync.Mutex
	answers []probeAnswer
}

type probeAnswer struct {
	at      time.Time
	inTime  bool // it was ready, and said so within the timeout
	unready bool
}

func startProbes(t *testing.T, replicas ...*harness.Replica) *probes {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	p := &probes{stop: stop}
	for _, r := range replicas {
		client, err := rest.HTTPClientFor(r.Config(""))
		if err != nil {
			t.Fatal(err)
		}
		client.Timeout = probePatience
		p.probing.Go(func() { p.probe(ctx, client, r.URL+"/readyz") })
	}
	t.Cleanup(p.finish)
	return p
}

func (p *probes) probe(ctx context.Context, client *http.Client, url string) {
	tick := time.NewTicker(probePeriod)
	defer tick.Stop()
	for wrong := 0; ; {
		answer := probeAnswer{at: time.Now()}
		wrong++
		if resp, err := client.Get(url); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				wrong = 0
			}
		}
		answer.inTime, answer.unready = wrong == 0 && time.Since(answer.at) < probeTimeout, wrong >= probeThreshold
		p.mu.Lock()
		p.answers = append(p.answers, answer)
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (p *probes) finish() {
	p.stop()
	p.probing.Wait()
}

// between says how many probes were not answered well in time, of those that began between two moments, and for how
// long replicas were not ready.
func (p *probes) between(from, to time.Time) (failed int, unready time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.answers {
		if a.at.Before(from) || !a.at.Before(to) {
			continue
		}
		if !a.inTime {
			failed++
		}
		if a.unready {
			unready += probePeriod
		}
	}
	return failed, unready
}
