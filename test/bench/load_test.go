package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/test/e2e/harness"
)

const (
	// group is the users'.
	group = "bench:users"
	// namespace is theirs, in root.
	namespace = "users"
	// objects is how many ConfigMaps each of them has, size how many bytes are in one, and writes of a hundred
	// requests how many write one.
	objects, size, writing = 5, 256, 25
	// patience is how long a user waits for an answer.
	patience = 10 * time.Second
)

// opened is the flag that builds a server which lets members of group do all. The product lets members of
// system:masters do so, and nobody else do anything, "until a further authorizer is added". They are no ordinary users:
// upstream does not apply its limit on requests in flight to them. So this adds a group beside them, in a copy of one
// file.
func opened(b *testing.B) string {
	b.Helper()
	const masters, both = "NewPrivilegedGroups(user.SystemPrivilegedGroup)", `NewPrivilegedGroups(user.SystemPrivilegedGroup, "` + group + `")`
	file, err := filepath.Abs("../../pkg/server/identity/authorizer.go")
	if err != nil {
		b.Fatal(err)
	}
	source, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	if n := bytes.Count(source, []byte(masters)); n != 1 {
		b.Fatalf("the authorizer says %s %d times, not once", masters, n)
	}
	changed := save(b, "authorizer.go", bytes.Replace(source, []byte(masters), []byte(both), 1))
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		b.Fatal(err)
	}
	return "-overlay=" + save(b, "overlay.json", overlay)
}

func save(b *testing.B, name string, content []byte) (file string) {
	b.Helper()
	file = filepath.Join(b.TempDir(), name)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		b.Fatal(err)
	}
	return file
}

// tokens is the flag that makes n users known, who are all in group.
func tokens(b *testing.B, n int) string {
	b.Helper()
	var file bytes.Buffer
	for i := range n {
		fmt.Fprintf(&file, "%s,user-%d,%d,%q\n", token(i), i, i, group)
	}
	return "--token-auth-file=" + save(b, "tokens.csv", file.Bytes())
}

func token(i int) string { return fmt.Sprintf("token-of-%d", i) }

// user is an ordinary one, with a connection of its own, through one replica, and ConfigMaps of its own.
type user struct {
	http  *http.Client
	token string
	// the URLs of the ConfigMaps' namespace: through its own replica, and through the other
	homes [replicasOfUsers]string
	names [objects]string
	body  [objects][]byte
	away  atomic.Bool // goes through the other

	mu      sync.Mutex
	answers []answer
}

// answer is what became of one request.
type answer struct {
	due  time.Duration // since the load began: when the request was to be sent, which may be before it was
	took time.Duration // from then
	code code
}

// code is an HTTP status, or one of those below.
type code int16

const (
	noAnswer code = iota // the connection broke, or there was none
	timedOut
)

func (c code) failed() bool { return c < http.StatusOK || c >= http.StatusMultipleChoices }

func (c code) String() string {
	switch c {
	case noAnswer:
		return "no answer"
	case timedOut:
		return fmt.Sprintf("none within %v", patience)
	default:
		return fmt.Sprint(int(c))
	}
}

// replicasOfUsers is among how many replicas they are divided: user i goes through replica i modulo that.
const replicasOfUsers = 2

// newUsers returns n users.
func newUsers(b *testing.B, n int, through []*harness.Replica) []*user {
	b.Helper()
	ca, err := os.ReadFile(through[0].Config("").CAFile)
	if err != nil {
		b.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	var all []*user
	for i := range n {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true, DialContext: (&net.Dialer{Timeout: patience}).DialContext}
		b.Cleanup(transport.CloseIdleConnections)
		u := &user{http: &http.Client{Transport: transport}, token: token(i)}
		for h := range u.homes {
			u.homes[h] = through[(i+h)%len(through)].URL + "/clusters/root/api/v1/namespaces/" + namespace + "/configmaps"
		}
		for o := range objects {
			u.names[o] = fmt.Sprintf("/of-%d-%d", i, o)
			object := &corev1.ConfigMap{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
				ObjectMeta: metav1.ObjectMeta{Name: u.names[o][1:]},
				Data:       map[string]string{"text": strings.Repeat("x", size), "n": "%d"},
			}
			if u.body[o], err = json.Marshal(object); err != nil {
				b.Fatal(err)
			}
		}
		all = append(all, u)
	}
	return all
}

// furnish has each user make its ConfigMaps. That opens their connections, too.
func furnish(b *testing.B, users []*user) {
	b.Helper()
	each(users, func(u *user) {
		for o := range objects {
			if got := u.ask(http.MethodPost, "", u.content(o)); got != http.StatusCreated {
				b.Errorf("a user cannot create a ConfigMap: %v", got)
			}
		}
	})
	if b.Failed() {
		b.FailNow()
	}
}

// each does it for all at once.
func each(users []*user, do func(*user)) {
	var all sync.WaitGroup
	for _, u := range users {
		all.Go(func() { do(u) })
	}
	all.Wait()
}

// content is that of an object, which changes with every write.
func (u *user) content(object int) []byte {
	return bytes.Replace(u.body[object], []byte("%d"), []byte(fmt.Sprint(rand.Int64())), 1)
}

// any reads or writes one of the ConfigMaps.
func (u *user) any() code {
	o := rand.IntN(objects)
	if rand.IntN(100) < writing {
		return u.ask(http.MethodPut, u.names[o], u.content(o))
	}
	return u.ask(http.MethodGet, u.names[o], nil)
}

// ask sends one request and reads all of the answer. It does not try again. With -move, a user without an answer goes
// to the other replica next.
func (u *user) ask(method, path string, body []byte) code {
	home := u.homes[0]
	if u.away.Load() {
		home = u.homes[1]
	}
	got := u.send(method, home+path, body)
	if got == noAnswer && *move && home == u.homes[0] {
		u.away.Store(true)
	}
	return got
}

func (u *user) send(method, url string, body []byte) code {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		panic(err) // our own URLs
	}
	req.Header.Set("Authorization", "Bearer "+u.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := u.http.Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	switch {
	case err == nil:
		return code(resp.StatusCode)
	case errors.Is(err, context.DeadlineExceeded):
		return timedOut
	default:
		return noAnswer
	}
}

// saturate has all users ask, each again as soon as it is answered, and returns how many requests are answered in a
// second: what the machine sustains. The first fifth of the time does not count.
func saturate(b *testing.B, users []*user, while time.Duration) (rate float64) {
	b.Helper()
	began := time.Now()
	counts, end := began.Add(while/5), began.Add(while)
	var mu sync.Mutex
	all, failed := 0, map[code]int{}
	each(users, func(u *user) {
		for time.Now().Before(end) {
			got := u.any()
			now := time.Now()
			mu.Lock()
			if got.failed() {
				failed[got]++
			} else if now.After(counts) && now.Before(end) {
				all++
			}
			mu.Unlock()
		}
	})
	if len(failed) > 0 {
		progress("while looking for what the machine sustains, these failed: %v", failed)
	}
	return float64(all) / end.Sub(counts).Seconds()
}

// load is that of users who ask when it is time to, whether or not they have been answered. Whoever is kept waiting
// keeps nobody from asking, and all the time since a request was due is its latency.
type load struct {
	users []*user
	began time.Time
	stop  context.CancelFunc
	ended sync.WaitGroup
}

// apply begins a load of rate requests a second, of all users together.
func apply(users []*user, rate float64) *load {
	ctx, stop := context.WithCancel(context.Background())
	l := &load{users: users, began: time.Now(), stop: stop}
	for _, u := range users {
		l.ended.Go(func() { l.schedule(ctx, u, rate/float64(len(users))) })
	}
	return l
}

// schedule sends the requests of one user, at random times, as those of many who know nothing of each other are.
func (l *load) schedule(ctx context.Context, u *user, rate float64) {
	var flying sync.WaitGroup
	defer flying.Wait()
	next := time.NewTimer(0)
	defer next.Stop()
	for due := l.began; ; {
		due = due.Add(time.Duration(rand.ExpFloat64() / rate * float64(time.Second)))
		next.Reset(time.Until(due))
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		flying.Go(func() {
			got := u.any()
			a := answer{due: due.Sub(l.began), took: time.Since(due), code: got}
			u.mu.Lock()
			u.answers = append(u.answers, a)
			u.mu.Unlock()
		})
	}
}

// back has all users go through their own replicas again.
func (l *load) back() {
	for _, u := range l.users {
		u.away.Store(false)
	}
}

// end ends it, and returns when all that was asked is answered.
func (l *load) end() {
	l.stop()
	l.ended.Wait()
}

// answers are those of the users of one replica, of requests that were due within a time.
func (l *load) answers(replica int, from, to time.Time) answers {
	var some answers
	for i := replica; i < len(l.users); i += replicasOfUsers {
		u := l.users[i]
		u.mu.Lock()
		for _, a := range u.answers {
			if a.due >= from.Sub(l.began) && a.due < to.Sub(l.began) {
				some = append(some, a)
			}
		}
		u.mu.Unlock()
	}
	return some
}

type answers []answer

// p99 is the latency's, of failures too: they are answers, or took as long as patience lasts.
func (all answers) p99() time.Duration {
	var took []time.Duration
	for _, a := range all {
		took = append(took, a.took)
	}
	if len(took) == 0 {
		return 0
	}
	return percentile(took, 99)
}

// failures counts them.
func (all answers) failures() (n int, by map[code]int) {
	by = map[code]int{}
	for _, a := range all {
		if a.code.failed() {
			n++
			by[a.code]++
		}
	}
	return n, by
}

// when says when the requests that failed were due: the first and the last.
func (all answers) when() (first, last time.Duration) {
	first = math.MaxInt64
	for _, a := range all {
		if a.code.failed() {
			first, last = min(first, a.due), max(last, a.due)
		}
	}
	return first, last
}

func TestWhoeverIsKeptWaitingKeepsNobodyFromAsking(t *testing.T) {
	const stall, rate = 500 * time.Millisecond, 400
	stalled := time.Now().Add(stall)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(time.Until(stalled))
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer server.Close()
	l := apply([]*user{{http: server.Client(), homes: [replicasOfUsers]string{server.URL, server.URL}}}, rate)
	time.Sleep(2 * stall)
	l.end()
	all := l.answers(0, l.began, time.Now())
	if failed, by := all.failures(); failed != len(all) || by[http.StatusTooManyRequests] != failed {
		t.Errorf("%d of %d failed: %v", failed, len(all), by)
	}
	waited := 0
	for _, a := range all {
		if a.took > stall/2 {
			waited++
		}
	}
	// In closed loop, it were one.
	if due := rate * int(stall/2/time.Millisecond) / 1000; waited < due/2 || waited > 2*due {
		t.Errorf("%d of %d requests waited long, and some %d were due early in the stall", waited, len(all), due)
	}
	if p99 := all.p99(); p99 < stall*3/4 {
		t.Errorf("p99 is %v although all stood still for %v", p99, stall)
	}
}
