package bench

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	restclient "k8s.io/client-go/rest"

	"github.com/regent-project/regent/test/e2e/harness"
)

// sampleServer is examples/apiserver. Its replicas have an etcd of their own, and in each turn a prefix of their own in
// it. Whoever leads stamps each Flunder with its term. As it comes the sample server has no controllers, so there is
// nothing to compare with.
type sampleServer struct {
	etcd   *harness.Etcd
	secret string
	writes *writes
	outcome
}

func (s *sampleServer) row() string {
	return s.in("sample-apiserver with `leader` and `etcdfence`", "an etcd of its own")
}

func startSample(b *testing.B) *sampleServer {
	b.Helper()
	s := &sampleServer{etcd: harness.StartEtcd(b), secret: filepath.Join(b.TempDir(), "secret")}
	if err := os.WriteFile(s.secret, []byte(rand.Text()), 0o600); err != nil {
		b.Fatal(err)
	}
	s.writes = follow(b, s.etcd.Client(b), "/", stamp)
	return s
}

// stamp reads a Flunder: the term that is written onto it, under the name of the turn.
func stamp(kv *mvccpb.KeyValue) (write, error) {
	turn, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), "/"), "/")
	if !strings.Contains(string(kv.Key), "/flunders/") {
		return write{}, nil
	}
	var flunder metav1.PartialObjectMetadata
	err := json.Unmarshal(kv.Value, &flunder)
	return write{name: turn, term: flunder.Labels["term"]}, err
}

// turn leaves out the machine that vanishes: the example's probe has any free port, before which no network can be put.
func (s *sampleServer) turn(b *testing.B, how ending) {
	if how == vanished {
		return
	}
	name := fmt.Sprintf("apiserver-%d", turnsOfAdoption.Add(1))
	var both []*harness.Process
	var flunders []dynamic.ResourceInterface
	for _, port := range harness.FreePorts(b, 2) {
		both = append(both, harness.Start(b, name, harness.Binary("apiserver"), "--etcd-servers="+s.etcd.URL, "--etcd-prefix=/"+name, "--probe-secret="+s.secret,
			"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--cert-dir="+b.TempDir()))
		client, err := dynamic.NewForConfig(&restclient.Config{
			Host: fmt.Sprintf("https://127.0.0.1:%d", port), TLSClientConfig: restclient.TLSClientConfig{Insecure: true}, QPS: -1, WarningHandler: restclient.NoWarnings{},
		})
		if err != nil {
			b.Fatal(err)
		}
		flunders = append(flunders, client.Resource(schema.GroupVersionResource{Group: "wardle.example.com", Version: "v1alpha1", Resource: "flunders"}).Namespace("default"))
	}
	harness.Eventually(b, name+" serves", func() bool { return createFlunder(b.Context(), flunders[0], "first") == nil })
	led := s.writes.next(b, name, "")
	leader, standby, through := both[0], both[1], flunders[1]
	if len(standby.Lines(`"Leading"`)) > 0 {
		leader, standby, through = both[1], both[0], flunders[0]
	}
	harness.Eventually(b, name+": the other stands by", func() bool { return len(standby.Lines("In contact with the leader's process")) > 0 })
	settle(4400 * time.Millisecond) // as in peer.at
	if how == paused {
		ctx, stop := context.WithCancel(b.Context())
		ended := make(chan struct{})
		go func() { // the leader has something to stamp all the time
			defer close(ended)
			for n := 0; ctx.Err() == nil; n++ {
				_ = createFlunder(ctx, through, fmt.Sprintf("more-%d", n))
				time.Sleep(20 * time.Millisecond)
			}
		}()
		defer func() {
			stop()
			<-ended
		}()
		harness.Eventually(b, name+": it stamps", func() bool { return len(leader.Lines(`"Stamped"`)) > 10 })
	}
	load, began := loadAverage(b), time.Now()
	signals := [...]syscall.Signal{askedToEnd: syscall.SIGTERM, killed: syscall.SIGKILL, paused: syscall.SIGSTOP}
	leader.Signal(signals[how])
	first := s.writes.next(b, name, led.term)
	if len(standby.Lines(`"Leading"`)) == 0 {
		b.Errorf("%s: the first write of the next term is not that of who stood by", name)
	}
	s.took(how, sample{began: began, took: first.at.Sub(began), load: load})
	switch how {
	case askedToEnd:
		if code := leader.Wait(); code != 0 {
			b.Errorf("%s: exit code %d", name, code)
		}
	case paused:
		s.wakeUp(leader, s.writes, led)
	}
	leader.Kill()
	standby.Kill()
}

func createFlunder(ctx context.Context, flunders dynamic.ResourceInterface, name string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := flunders.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder", "metadata": map[string]any{"name": name},
	}}, metav1.CreateOptions{})
	return err
}
