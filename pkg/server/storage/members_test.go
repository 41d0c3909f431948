package storage_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/regent-project/regent/pkg/server/storage"
	"github.com/regent-project/regent/test/e2e/proxy"
	"github.com/regent-project/regent/test/etcdtest"
)

// ways are several ways to one etcd: to a client they are members, and each can be made to hang by itself. One way
// counts as two members.
type ways struct {
	proxies   []*proxy.Proxy
	endpoints []string
	client    *storage.Client
	log       logBuffer
}

// logBuffer is what was logged.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *logBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *logBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func newWays(t *testing.T, n int) *ways {
	t.Helper()
	transport := etcdtest.Start(t)
	u, err := url.Parse(transport.ServerList[0])
	if err != nil {
		t.Fatal(err)
	}
	w := &ways{}
	for range n {
		p, err := proxy.Start(u.Host)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		w.proxies, w.endpoints = append(w.proxies, p), append(w.endpoints, u.Scheme+"://"+p.Addr())
		if n == 1 { // by another name: two members that hang at the same moment
			w.endpoints = append(w.endpoints, strings.Replace(w.endpoints[0], "127.0.0.1", "localhost", 1))
		}
	}
	transport.ServerList = w.endpoints
	w.client, err = storage.NewClient(storage.Config{Transport: transport, Prefix: "/registry"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&w.log)))))
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := w.client.WatchMembers(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		watching.Wait()
		_ = w.client.Close()
	})
	return w
}

// write puts a key anew, on condition that it is as it was last seen, as all writes of objects are.
func (w *ways) write(t *testing.T, key, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	kv := w.client.Etcd().KV
	seen, err := kv.Get(ctx, key)
	if err != nil {
		t.Errorf("read: %v", err)
		return
	}
	resp, err := kv.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", seen.Kvs[0].ModRevision)).Then(clientv3.OpPut(key, value)).Commit()
	if err != nil || !resp.Succeeded {
		t.Errorf("write: %+v, %v", resp, err)
	}
}

// serves is what the metric says of each endpoint.
func (w *ways) serves(t *testing.T) (serving []bool) {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	for _, family := range families {
		if family.GetName() == "regent_etcd_member_serves" {
			for _, m := range family.GetMetric() {
				said[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue() == 1
			}
		}
	}
	for _, endpoint := range w.endpoints {
		serving = append(serving, said[endpoint])
	}
	return serving
}

func (w *ways) wait(t *testing.T, what string, done func([]bool) bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(w.serves(t)); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: members serve: %v", what, w.serves(t))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestAMemberOfEtcdThatHangsIsAvoidedUntilItAnswers(t *testing.T) {
	w := newWays(t, 3)
	if _, err := w.client.Etcd().Put(t.Context(), "k", "0"); err != nil {
		t.Fatal(err)
	}
	// Watches of enough streams that each member has some.
	changes := make([]clientv3.WatchChan, 9)
	for i := range changes {
		changes[i] = w.client.Etcd().Watch(storage.WithStream(t.Context(), fmt.Sprint(i)), "k")
	}
	w.wait(t, "at first", func(s []bool) bool { return s[0] && s[1] && s[2] })
	for round := range 3 {
		w.proxies[round].Stall()
		for i := range 20 {
			w.write(t, "k", fmt.Sprintf("%d.%d", round, i))
		}
		w.wait(t, "one hangs", func(s []bool) bool { return !s[round] && s[(round+1)%3] && s[(round+2)%3] })
		last := fmt.Sprintf("%d.last", round)
		w.write(t, "k", last)
		for i, c := range changes {
			waitValue(t, i, c, last)
		}
		w.proxies[round].Resume()
		w.wait(t, "it answers again", func(s []bool) bool { return s[0] && s[1] && s[2] })
	}
}

func TestTheLogSaysWhyAMemberOfEtcdIsAvoided(t *testing.T) {
	w := newWays(t, 2)
	w.wait(t, "at first", func(s []bool) bool { return s[0] && s[1] })
	w.proxies[0].Close()
	w.wait(t, "the log says why", func([]bool) bool {
		said := w.log.String()
		return strings.Contains(said, w.endpoints[0]) && strings.Contains(said, "connection refused")
	})
	if s := w.serves(t); s[0] || !s[1] {
		t.Errorf("members serve: %v", s)
	}
}

func waitValue(t *testing.T, i int, changes clientv3.WatchChan, want string) {
	t.Helper()
	late := time.After(30 * time.Second)
	for {
		select {
		case <-late:
			t.Fatalf("watch %d does not see %q: it stands still", i, want)
		case resp := <-changes:
			for _, event := range resp.Events {
				if string(event.Kv.Value) == want {
					return
				}
			}
		}
	}
}

// If no member answers, it is not the member: nobody is avoided, and all goes on as soon as one answers.
func TestAnEtcdOfWhichNoMemberAnswersIsNotAvoided(t *testing.T) {
	w := newWays(t, 1)
	if _, err := w.client.Etcd().Put(t.Context(), "k", "0"); err != nil {
		t.Fatal(err)
	}
	w.wait(t, "at first", func(s []bool) bool { return s[0] && s[1] })
	for _, p := range w.proxies {
		p.Stall()
	}
	time.Sleep(3 * time.Second) // three questions
	if s := w.serves(t); !s[0] || !s[1] {
		t.Errorf("members serve: %v", s)
	}
	for _, p := range w.proxies {
		p.Resume()
	}
	w.write(t, "k", "1")
}

// When all come back, one is the first to answer. The others are given the time to do so, too: what they did not answer
// before, nobody did.
func TestWhoAnswersAfterTheFirstIsNotAvoided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		all := []string{"a:1", "b:1", "c:1"}
		m := storage.NewMembers(all...)
		for range 3 {
			asked := time.Now()
			time.Sleep(time.Second)
			for _, endpoint := range all {
				m.Miss(ctx, endpoint, asked)
			}
		}
		asked := time.Now()
		time.Sleep(10 * time.Millisecond)
		m.Hear(ctx, "a:1", asked)
		if m.Avoids("b:1") || m.Avoids("c:1") {
			t.Error("members are avoided before they had the time to answer")
		}
		m.Hear(ctx, "b:1", asked)
		for range 2 { // c hangs on
			asked := time.Now()
			time.Sleep(time.Second)
			m.Hear(ctx, "a:1", asked.Add(500*time.Millisecond))
			m.Miss(ctx, "c:1", asked)
		}
		if m.Avoids("a:1") || m.Avoids("b:1") || !m.Avoids("c:1") {
			t.Errorf("avoided: a %t, b %t, c %t; want c alone", m.Avoids("a:1"), m.Avoids("b:1"), m.Avoids("c:1"))
		}
	})
}

// When all fall silent at once, the last answer comes from one of them.
func TestWhoFallsSilentFirstOfAllIsNotAvoided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storage.NewMembers("a:1", "b:1")
		asked := time.Now()
		time.Sleep(300 * time.Millisecond)
		m.Hear(t.Context(), "b:1", asked.Add(200*time.Millisecond))
		time.Sleep(700 * time.Millisecond)
		m.Miss(t.Context(), "a:1", asked)
		time.Sleep(time.Second)
		m.Miss(t.Context(), "b:1", asked.Add(700*time.Millisecond))
		m.Miss(t.Context(), "a:1", asked.Add(time.Second))
		if m.Avoids("a:1") || m.Avoids("b:1") {
			t.Errorf("avoided: a %t, b %t", m.Avoids("a:1"), m.Avoids("b:1"))
		}
	})
}

func TestAMemberMayListenAtASocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "etcd")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, address := range []string{"unix:" + socket, "unix://" + socket} {
		conn, err := storage.Dial(t.Context(), address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		_ = conn.Close()
	}
}
