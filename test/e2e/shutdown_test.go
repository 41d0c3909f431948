package e2e

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/regent-project/regent/test/e2e/harness"
)

// inTime is how long a process may take to stop, with the default timings (docs/INSTALL.md).
const inTime = 40 * time.Second

func TestAReplicaWithAHundredWatchesStopsInTime(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			shard := harness.NewShard(harness.StartEtcd(t).URL)
			shard.Timings = harness.Default // its only term ends with the process
			r := shard.Start(t, "a")
			r.WaitRoot()
			watches := openWatches(t, r, 100)
			var kubectls []*kubectlWatch
			for range 3 {
				kubectls = append(kubectls, startKubectl(t, kubectl{r, "root"}, "default", "get", "namespaces", "-w"))
			}
			late := beginRequest(t, r)

			began := time.Now()
			r.Signal(signal)
			harness.Eventually(t, "the log names the signal", func() bool {
				return len(r.Lines("Stopping", `signal="`+signal.String()+`"`)) == 1
			})
			if a := late.finish(t); a.status != http.StatusCreated {
				t.Errorf("the request in flight was answered with %d: %s", a.status, a.body)
			}
			code := r.WaitIn(inTime - time.Since(began))
			t.Logf("gone %v after %v", time.Since(began).Round(time.Millisecond), signal)
			if code != 0 {
				t.Errorf("exit code %d", code)
			}
			for _, w := range watches {
				for range w.ResultChan() { // ends with the watch
				}
			}
			for _, k := range kubectls {
				k.mustEnd(t)
			}
			if terms := r.Terms(); len(terms) != 1 || terms[0].Reason != "shutdown" {
				t.Errorf("terms %v", terms)
			}
		})
	}
}

// openWatches opens watches with connections of their own, as of so many clients.
func openWatches(t *testing.T, r *harness.Replica, n int) []watch.Interface {
	t.Helper()
	watches := make([]watch.Interface, n)
	var opening sync.WaitGroup
	for i := range n {
		opening.Go(func() {
			config := r.Config("root")
			// client-go shares no transport of a config that dials by itself
			config.Dial = (&net.Dialer{}).DialContext
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Error(err)
				return
			}
			w, err := client.CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			watches[i] = w
			t.Cleanup(w.Stop)
		})
	}
	opening.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return watches
}

// slowRequest is one whose body the server is reading, and has not read.
type slowRequest struct {
	body   *io.PipeWriter
	answer chan answer
}

// answer is a response, or status 0 and an error.
type answer struct {
	status int
	body   string
}

// beginRequest returns once the server works on the request.
func beginRequest(t *testing.T, r *harness.Replica) *slowRequest {
	t.Helper()
	tlsConfig, err := rest.TLSConfigFor(r.Config("root"))
	if err != nil {
		t.Fatal(err)
	}
	// HTTP/1.1, which has "100 Continue": the server sends it when it begins to read the body.
	tlsConfig.NextProtos = []string{"http/1.1"}
	transport := &http.Transport{TLSClientConfig: tlsConfig, ExpectContinueTimeout: harness.Patience, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
	t.Cleanup(transport.CloseIdleConnections)

	ctx, cancel := context.WithCancel(t.Context())
	reader, writer := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.Config("root").Host+"/api/v1/namespaces/default/configmaps", reader)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Expect", "100-continue")
	s := &slowRequest{body: writer, answer: make(chan answer, 1)}
	done := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		_ = writer.Close()
		<-done
	})
	go func() {
		defer close(done)
		resp, err := transport.RoundTrip(req)
		if err != nil {
			s.answer <- answer{0, err.Error()}
			return
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		s.answer <- answer{resp.StatusCode, string(body)}
	}()
	// Returns once the transport has taken it, which waits for the server.
	if _, err := io.WriteString(writer, `{"apiVersion":"v1","kind":"ConfigMap",`); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *slowRequest) finish(t *testing.T) (a answer) {
	t.Helper()
	if _, err := io.WriteString(s.body, `"metadata":{"name":"late"}}`); err != nil {
		t.Errorf("the request in flight was cut off: %v", err)
	}
	_ = s.body.Close()
	select {
	case a = <-s.answer:
	case <-time.After(harness.Patience):
		t.Error("the request in flight has no answer")
	}
	return a
}

func TestASecondSignalEndsTheProcessAtOnce(t *testing.T) {
	for _, second := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(second.String(), func(t *testing.T) {
			r := harness.NewShard(harness.StartEtcd(t).URL).Start(t, "a")
			r.WaitRoot()
			beginRequest(t, r) // for whose end it has to wait
			r.Signal(syscall.SIGTERM)
			harness.Eventually(t, "it is stopping", func() bool { return len(r.Lines("Stopping", `signal="terminated"`)) == 1 })
			began := time.Now()
			r.Signal(second)
			if code := r.Wait(); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			took := time.Since(began)
			t.Logf("gone %v after the second signal", took.Round(time.Millisecond))
			if took > harness.Patience/6 { // for the request it would wait a minute
				t.Errorf("gone %v after the second signal, which is not at once", took)
			}
			if len(r.Lines("Exiting at once", `signal="`+second.String()+`"`)) != 1 {
				t.Error("the log does not name the second signal")
			}
		})
	}
}

func TestBadFlagsStartNothing(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--no-such-flag"}, "--no-such-flag"},
		{[]string{"--secure-port=-1"}, "--secure-port"},
		{[]string{"--leader-election-lease-duration=500ms"}, "--leader-election-lease-duration"},
		{[]string{"--leader-election-renew-deadline=15s"}, "--leader-election-renew-deadline"},
		{[]string{"--controller-drain-timeout=11s"}, "--controller-drain-timeout"},
		{[]string{"--etcd-servers=not a url"}, "--etcd-servers"},
		{[]string{"--shard-name=No Name"}, "--shard-name"},
		{[]string{"--shard-base-url=ftp://x"}, "--shard-base-url"},
	} {
		t.Run(c.args[0], func(t *testing.T) {
			directory := t.TempDir()
			root := filepath.Join(directory, "root")
			cmd := harness.Command(t, "regent", append([]string{"start", "--root-directory=" + root}, c.args...)...)
			cmd.Dir = directory
			var stderr strings.Builder
			cmd.Stderr = &stderr
			stdout, err := cmd.Output()
			if err == nil || cmd.ProcessState.ExitCode() != 2 {
				t.Errorf("exit code %d, want 2", cmd.ProcessState.ExitCode())
			}
			if said := stderr.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, c.want) || len(stdout) > 0 {
				t.Errorf("want one line with %s on stderr and nothing else, got:\n%s\nand:\n%s", c.want, said, stdout)
			}
			if left, err := os.ReadDir(directory); err != nil || len(left) > 0 {
				t.Errorf("something was started: %v, %v", left, err)
			}
		})
	}
}
