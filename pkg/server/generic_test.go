package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/discovery"
)

type pingFunc func(context.Context) error

func (f pingFunc) Ping(ctx context.Context) error { return f(ctx) }

func TestACallerThatHangsUpMakesNoCheckFail(t *testing.T) {
	check := supervisorCheck(pingFunc(func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return errors.New("it does not answer")
		case <-time.After(10 * time.Millisecond):
			return nil
		}
	}))
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	if err := check.Check(httptest.NewRequest(http.MethodGet, "/readyz", nil).WithContext(ctx)); err != nil {
		t.Error(err)
	}
}

func TestDeletingTheMetricsRemovesNone(t *testing.T) {
	cfg := config(t, t.TempDir())
	cfg.Profiling = true
	r := startReplica(t, cfg)
	defer func() { _ = r.stop(t) }()
	r.ask(t, http.MethodDelete, "/metrics", r.server.identity.InProcess.Replica)
	got := r.ask(t, http.MethodGet, "/metrics", r.server.identity.InProcess.Replica)
	for _, name := range []string{`regent_api_connections_refused_total{limit="total"}`, "kubernetes_build_info"} {
		if !strings.Contains(got.body, "\n"+name) {
			t.Errorf("%s has gone", name)
		}
	}
	if got := r.ask(t, http.MethodGet, "/debug/pprof/goroutine", r.server.identity.InProcess.Replica); got.status != http.StatusOK {
		t.Errorf("profiles: %d", got.status)
	}
	if got := r.ask(t, http.MethodGet, "/debug/pprof/goroutine", ""); got.status != http.StatusUnauthorized {
		t.Errorf("profiles, to nobody: %d, want 401", got.status)
	}
}

// kubectl refuses a server whose version it cannot parse. Tests are built without make, and so without a version by the
// linker.
func TestABuildWithoutMakeHasAVersionForClients(t *testing.T) {
	r := startReplica(t, config(t, t.TempDir()))
	defer func() { _ = r.stop(t) }()
	got, err := discovery.NewDiscoveryClient(r.admin(t)).ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if v, err := utilversion.ParseSemantic(got.GitVersion); err != nil || v.Minor() < 37 || !strings.Contains(got.GitVersion, "+regent.") {
		t.Errorf("/version says %s: %v", got.GitVersion, err)
	}
}

func TestASelectionByNameOverAllClustersFindsTheNameInEach(t *testing.T) {
	r, _ := startAudited(t)
	defer func() { _ = r.stop(t) }()
	for _, name := range []string{"one", "two"} {
		r.createCluster(t, name)
	}
	for name, want := range map[string]int{"cluster": 2, "other": 0} {
		got := r.ask(t, http.MethodGet, "/clusters/*/apis/core.kcp.io/v1alpha1/logicalclusters?fieldSelector=metadata.name="+name, "t-root")
		var list unstructured.UnstructuredList
		if err := json.Unmarshal([]byte(got.body), &list); err != nil || got.status != http.StatusOK || len(list.Items) != want {
			t.Errorf("%s: %d, %d items, %v; want %d items", name, got.status, len(list.Items), err, want)
		}
	}
}

func TestAReplicaServesOnNotReadyForTheShutdownDelay(t *testing.T) {
	t.Parallel()                   // most of it is waiting
	const delay = 10 * time.Second // also for a busy machine
	cfg := config(t, t.TempDir())
	cfg.ShutdownDelay = delay
	r := startReplica(t, cfg)
	began := time.Now()
	r.cancel()
	for status := http.StatusOK; status != http.StatusInternalServerError; status = r.get(t, "/readyz") {
		if time.Since(began) > delay {
			t.Fatal("it has served on, ready, or not at all")
		}
	}
	until(t, "an answer that ends its connection, before the listener closes", func() bool {
		reused := true
		trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }}
		req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, r.url+"/livez", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return !reused
	})
	if err := r.stop(t); err != nil || time.Since(began) < delay {
		t.Errorf("stopped after %v: %v", time.Since(began), err)
	}
}

// What is served during the delay comes from informers that go on; the lease is for others at once.
func TestOnlyTheElectionEndsBeforeTheShutdownDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = time.Hour
		r := newRun(&Server{cfg: Config{Settings: Settings{ShutdownDelay: delay}}, generic: &genericapiserver.Config{}}, t.Context())
		r.process.Go("informers", func() error {
			<-r.process.ctx.Done()
			return nil
		})
		began := time.Now()
		var asked sync.WaitGroup
		asked.Go(func() { r.end(time.Second) })
		synctest.Wait()
		if r.election.ctx.Err() == nil || r.process.ctx.Err() != nil {
			t.Errorf("at once: the election has ended: %t, the informers: %t; want the election alone", r.election.ctx.Err() != nil, r.process.ctx.Err() != nil)
		}
		asked.Wait()
		if r.process.ctx.Err() == nil || time.Since(began) != delay {
			t.Errorf("the informers have ended: %t, after %v, want %v", r.process.ctx.Err() != nil, time.Since(began), delay)
		}
		r.stop(nil)
	})
}
