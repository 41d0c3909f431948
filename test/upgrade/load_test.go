package upgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/test/e2e/history"
)

// A tenant is a workspace, as its users see it, and where it is.
type tenant struct{ path, cluster, shard string }

// url is where the balancer has its ConfigMaps.
func (w tenant) url(through string) string {
	return through + "/clusters/" + w.path + "/api/v1/namespaces/default/configmaps"
}

// key is what a ConfigMap of it is called in etcd.
func (w tenant) key(name string) string {
	return "/registry/core/configmaps/" + w.cluster + "/default/" + name
}

// patience is that of a user. clients is how many programs they have.
const patience, clients = 20 * time.Second, 24

// load are users who make so many requests a second, whether or not they are answered.
type load struct {
	tenants []tenant
	url     string
	clients []*client
	made    []string // of each tenant, the ConfigMap that was made last

	stop    context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	phases   []phase
	requests []request
	writes   []write
	inflight int
	most     int
}

// A phase begins at a moment, and ends with the next.
type phase struct {
	name string
	from time.Time
}

// A request was due at a moment, and took so long from then on.
type request struct {
	what string
	due  time.Time
	took time.Duration
	err  error
	to   tenant
}

// write is one that was acknowledged.
type write struct {
	shard, key, value string
	revision          int64
}

// newLoad lets users in, who have one ConfigMap in each workspace. They begin with start.
func newLoad(t *testing.T, config *rest.Config, url string, tenants []tenant) *load {
	t.Helper()
	l := &load{tenants: tenants, url: url, made: make([]string, len(tenants))}
	for range clients {
		l.clients = append(l.clients, newClient(t, config))
	}
	for n := range tenants {
		if err := l.write(t.Context(), n, n, http.MethodPost, "seed"); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// start has users make so many requests a second.
func (l *load) start(t *testing.T, rate int) {
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	t.Cleanup(l.finish)
	l.running.Go(func() { l.run(ctx, rate) })
}

// finish has users go, and returns when the last has its answer.
func (l *load) finish() {
	l.stop()
	l.running.Wait()
}

// begin begins a phase.
func (l *load) begin(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phases = append(l.phases, phase{name, time.Now()})
}

func (l *load) run(ctx context.Context, rate int) {
	began := time.Now()
	for n := len(l.tenants); ; n++ {
		due := began.Add(time.Duration(n-len(l.tenants)) * time.Second / time.Duration(rate))
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(due)):
		}
		l.running.Go(func() { l.ask(n, due) })
	}
}

// ask makes the n-th request: of ten five read, one lists, three change something, and one makes something new.
func (l *load) ask(n int, due time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	to := n / 10 % len(l.tenants) // each tenant gets all kinds
	l.mu.Lock()
	l.inflight++
	l.most = max(l.most, l.inflight)
	made := l.made[to]
	l.mu.Unlock()
	r := request{due: due, to: l.tenants[to]}
	switch n % 10 {
	case 0, 1, 2, 3, 4:
		name := "seed"
		if n%2 == 0 && made != "" {
			name = made
		}
		r.what, r.err = "get", l.read(ctx, n, l.tenants[to].url(l.url)+"/"+name)
	case 5:
		r.what, r.err = "list", l.read(ctx, n, l.url+"/clusters/"+l.tenants[to].path+"/api/v1/namespaces")
	case 6, 7, 8:
		r.what, r.err = "update", l.write(ctx, n, to, http.MethodPut, "seed")
	default:
		name := "made-" + strconv.Itoa(n)
		if r.what, r.err = "create", l.write(ctx, n, to, http.MethodPost, name); r.err == nil {
			made = name
		}
	}
	r.took = time.Since(due)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inflight--
	l.made[to] = made
	l.requests = append(l.requests, r)
}

func (l *load) read(ctx context.Context, n int, url string) error {
	status, answer, err := l.clients[n%clients].do(ctx, http.MethodGet, url, nil)
	return faultOf(status, answer, err)
}

func (l *load) write(ctx context.Context, n, to int, method, name string) error {
	value := strconv.Itoa(n)
	body := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{%q:%q}}`, name, history.ValueKey, value)
	w := l.tenants[to]
	url := w.url(l.url)
	if method == http.MethodPut {
		url += "/" + name
	}
	status, answer, err := l.clients[n%clients].do(ctx, method, url, body)
	if err := faultOf(status, answer, err); err != nil {
		return err
	}
	var object struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(answer, &object); err != nil {
		return err
	}
	revision, err := strconv.ParseInt(object.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes = append(l.writes, write{shard: w.shard, key: w.key(name), value: value, revision: revision})
	return nil
}

// faultOf says what is wrong with an answer; nil: nothing.
func faultOf(status int, answer []byte, err error) error {
	if err != nil {
		return err
	}
	if status >= 200 && status < 300 {
		return nil
	}
	var said struct{ Reason, Message string }
	_ = json.Unmarshal(answer, &said)
	return fmt.Errorf("%d %s: %s", status, said.Reason, said.Message)
}

// measured is what one phase shows.
type measured struct {
	requests, failed int
	p50, p99, most   time.Duration
	faults           map[string]int
}

// measure returns what the phases show, by their names.
func (l *load) measure() map[string]measured {
	l.mu.Lock()
	defer l.mu.Unlock()
	times := map[string][]time.Duration{}
	out := map[string]measured{}
	for _, r := range l.requests {
		name := l.phaseAt(r.due)
		m := out[name]
		if m.requests++; r.err != nil {
			if m.faults == nil {
				m.faults = map[string]int{}
			}
			m.failed++
			m.faults[r.what+" on "+r.to.shard+": "+varying.ReplaceAllString(r.err.Error(), "#")]++
		}
		out[name], times[name] = m, append(times[name], r.took)
	}
	for name, all := range times {
		slices.Sort(all)
		m := out[name]
		m.p50, m.p99, m.most = all[len(all)/2], all[len(all)*99/100], all[len(all)-1]
		out[name] = m
	}
	return out
}

// varying is what differs between errors that are the same.
var varying = regexp.MustCompile(`[0-9]{2,}|clusters/[^/ ]+|root:[a-z0-9-]+|made-[0-9]+`)

func (l *load) phaseAt(at time.Time) (name string) {
	for _, p := range l.phases {
		if p.from.After(at) {
			break
		}
		name = p.name
	}
	return name
}

// tell writes into the log what users were told.
func (l *load) tell(t *testing.T) map[string]measured {
	t.Helper()
	all := l.measure()
	told := map[string]bool{}
	for _, p := range l.phases {
		if told[p.name] {
			continue
		}
		told[p.name] = true
		m := all[p.name]
		t.Logf("%-10s %6d requests, %4d failed, p50 %6.1f ms, p99 %6.1f ms, at most %6.1f ms", p.name, m.requests, m.failed, ms(m.p50), ms(m.p99), ms(m.most))
		var faults []string
		for fault, n := range m.faults {
			faults = append(faults, fmt.Sprintf("%6d %s", n, fault))
		}
		slices.Sort(faults)
		if len(faults) > 0 {
			t.Logf("%s: what failed:\n%s", p.name, strings.Join(faults[:min(len(faults), 40)], "\n"))
		}
	}
	t.Logf("at most %d requests at once; %d writes were acknowledged", l.most, len(l.writes))
	return all
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
