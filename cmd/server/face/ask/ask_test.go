package ask_test

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/regent-project/regent/cmd/server/face/ask"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/pkg/server/status/statustest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Started by packages' init functions, for the life of the process.
		goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		goleak.IgnoreAnyFunction("go.opencensus.io/stats/view.(*worker).start"),
	)
}

func TestWhoIsAsked(t *testing.T) {
	file := clientcmdapi.NewConfig()
	file.AuthInfos["admin"], file.AuthInfos["other"] = &clientcmdapi.AuthInfo{Token: "a"}, &clientcmdapi.AuthInfo{Token: "b"}
	add := func(name, url, user, authority string) {
		file.Clusters[name] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: []byte(authority)}
		file.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
	}
	add("system:admin", "https://front/shards/root/clusters/system:admin", "admin", "ca")
	add("root", "https://front/clusters/root", "admin", "ca")
	add("root-replica-0", "https://a/clusters/root", "admin", "ca")
	add("eu1-replica-1", "https://b/clusters/root", "admin", "ca")
	add("replica-2", "https://stranger", "other", "ca")
	add("replica-3", "https://elsewhere", "admin", "another ca")
	for _, c := range []struct {
		context, server string
		want            []string
	}{
		{"system:admin", "", []string{"https://front/shards/root", "https://b", "https://a"}},
		{"root-replica-0", "", []string{"https://a", "https://b"}},
		{"system:admin", "https://c:1/", []string{"https://c:1", "https://c:1/shards/root"}},
		{"root", "https://c:1", []string{"https://c:1"}},
	} {
		places, err := ask.Places(*file, c.context, c.server)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range places {
			got = append(got, p.Config.Host)
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s, %q: asks %q, want %q", c.context, c.server, got, c.want)
		}
	}
	if _, err := ask.Places(*file, "none", ""); err == nil {
		t.Error("a context that is not there was found")
	}
}

// serve starts a server that answers by path, and returns a client of it.
func serve(t *testing.T, answer http.HandlerFunc) (*ask.Client, *httptest.Server) {
	t.Helper()
	server := httptest.NewUnstartedServer(answer)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return ask.New([]ask.Place{{Config: &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}}}), server
}

// A server that leads to any replica is asked for the shard's leader, and for one term.
func TestAnyReplicaIsAskedToHaveTheLeaderStepDown(t *testing.T) {
	of, asked := statustest.Lone(), 0
	client, server := serve(t, func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.URL.Path == routing.StepDownPath && req.URL.RawQuery != "shard=root&epoch=5":
			http.Error(w, "which term?", http.StatusBadRequest)
		case req.URL.Path == routing.StepDownPath:
			asked++
			_ = json.NewEncoder(w).Encode(map[string]any{"replica": statustest.A, "epoch": 5})
		case req.URL.Path == status.InstallationPath:
			after := statustest.Lone()
			after.Shards[0].Replicas[1].Election.State, after.Shards[0].Replicas[1].Election.Epoch = "leading", 6
			_ = json.NewEncoder(w).Encode(after)
		}
	})
	for i := range of.Shards[0].Replicas {
		of.Shards[0].Replicas[i].URL = server.URL
	}
	change, err := client.StepDown(t.Context(), of, of.Shards[0], ask.Wish{Reason: "test", Epoch: 5})
	if err != nil {
		t.Fatal(err)
	}
	if change, err = client.AwaitSuccessor(t.Context(), of, change, time.Now()); err != nil {
		t.Fatal(err)
	}
	if change.From != statustest.A || change.To != statustest.B || change.After != 6 || asked != 1 {
		t.Errorf("%+v, asked %d times", change, asked)
	}
}

// Ranges have nothing to do with each other: their epochs may be the same, and a replica's holder identity is.
func TestATriggerIsTakenFromTheSameTerm(t *testing.T) {
	of := statustest.Lone()
	of.Shards[0].Terms = []status.Term{{Range: 7, Epoch: 5, Holder: "a", Trigger: "death"}, {Epoch: 5, Holder: "a", Trigger: "release"}}
	client, server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(status.Terms{Terms: []status.Term{{Epoch: 5, Holder: "a"}, {Range: 9, Epoch: 5, Holder: "a"}, {Range: 7, Epoch: 5, Holder: "a", Trigger: "expiry"}}})
	})
	for i := range of.Shards[0].Replicas {
		of.Shards[0].Replicas[i].URL = server.URL
	}
	told, err := client.Terms(t.Context(), of, "root")
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range []string{"release", "", "expiry"} {
		if got := told.Terms[n].Trigger; got != want {
			t.Errorf("term %d of range %d began because of %q, want %q", told.Terms[n].Epoch, told.Terms[n].Range, got, want)
		}
	}
}

// A wish that is not carried out is not repeated elsewhere: the replica that was asked has passed it on, perhaps.
func TestAWishIsSentOnce(t *testing.T) {
	for _, code := range []int{http.StatusConflict, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusNotFound} {
		of, asked := statustest.Lone(), 0
		client, server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			asked++
			http.Error(w, "replica a leads, and could not be asked", code)
		})
		for i := range of.Shards[0].Replicas {
			of.Shards[0].Replicas[i].URL = server.URL
		}
		if _, err := client.StepDown(t.Context(), of, of.Shards[0], ask.Wish{}); err == nil || !strings.Contains(err.Error(), "could not be asked") || asked != 1 {
			t.Errorf("%d: %v, asked %d times", code, err, asked)
		}
	}
}

func TestAReplicaThatIsGoneIsNotTheOneToHaveTheLeaderStepDown(t *testing.T) {
	of := statustest.Three()
	client, server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"replica": statustest.A, "epoch": 5})
	})
	shard, err := ask.OneShard(of, "eu1")
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range shard.Replicas {
		if shard.Replicas[i].URL = server.URL; r.Name == shard.Leader {
			shard.Replicas[i].URL = "https://127.0.0.1:1"
		}
	}
	if change, err := client.StepDown(t.Context(), of, shard, ask.Wish{}); err != nil || change.Before != 5 {
		t.Errorf("%+v, %v", change, err)
	}
	for i := range shard.Replicas {
		shard.Replicas[i].URL = ""
	}
	if _, err := client.StepDown(t.Context(), of, shard, ask.Wish{}); err == nil || !strings.Contains(err.Error(), "none has told its URL") {
		t.Errorf("without any URL: %v", err)
	}
}

// Whoever asks twice, or took the name from a status of before, has what they want: nobody is waited for.
func TestAReplicaThatLeadsAlreadyNeedNotBeWaitedFor(t *testing.T) {
	of := statustest.Lone()
	client, _ := serve(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != routing.StepDownPath {
			t.Errorf("asked for %s", req.URL.Path)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"replica": statustest.A, "epoch": 5, "goesOn": true})
	})
	change, err := client.StepDown(t.Context(), of, of.Shards[0], ask.Wish{To: statustest.A})
	if err != nil {
		t.Fatal(err)
	}
	if change, err = client.AwaitSuccessor(t.Context(), of, change, time.Now()); err != nil {
		t.Fatal(err)
	}
	if !change.LedAlready() || change.To != statustest.A || change.After != 5 || change.Took != 0 {
		t.Errorf("%+v", change)
	}
}

func TestARefusalSaysWhoRefusesAndWhy(t *testing.T) {
	of := statustest.Lone()
	for code, want := range map[int]string{
		http.StatusForbidden:    "docs/ACCESS.md",
		http.StatusUnauthorized: "credentials",
		http.StatusNotFound:     "older version",
	} {
		client, server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, `{"kind":"Status","message":"no way"}`)
		})
		_, err := client.Installation(t.Context())
		if err == nil || !strings.Contains(err.Error(), server.URL) || !strings.Contains(err.Error(), "no way") || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", code, err)
		}
		of.Shards[0].Replicas[0].URL = server.URL
		if code != http.StatusNotFound {
			continue
		}
		if _, err := client.StepDown(t.Context(), of, of.Shards[0], ask.Wish{To: "nobody"}); err == nil || !strings.Contains(err.Error(), "no way") || strings.Contains(err.Error(), want) {
			t.Errorf("step down: %v", err)
		}
	}
}

func TestAShardIsNamedIfThereAreSeveral(t *testing.T) {
	for _, c := range []struct {
		of         status.Installation
		name, want string
	}{
		{statustest.Lone(), "", "root"}, {statustest.Three(), "eu1", "eu1"}, {statustest.Three(), "", ""}, {statustest.Lone(), "eu1", ""},
	} {
		s, err := ask.OneShard(c.of, c.name)
		if s.Name != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%q: %q, %v", c.name, s.Name, err)
		}
	}
}

func TestAReplicaIsMeasuredByWhatItAnswers(t *testing.T) {
	client, server := serve(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == status.ReplicaPath {
			_ = json.NewEncoder(w).Encode(status.Replica{Name: statustest.A, Observed: time.Now().Add(time.Hour)})
		}
	})
	of := statustest.Lone()
	of.Shards[0].Replicas[0].URL = server.URL
	seen, err := client.Measure(t.Context(), of, of.Shards[0].Replicas[0])
	if err != nil {
		t.Fatal(err)
	}
	if off := seen.Ahead - time.Hour; off.Abs() > time.Minute || len(seen.Latencies) != 5 || !seen.Expires.Equal(server.Certificate().NotAfter) {
		t.Errorf("%+v", seen)
	}
}
