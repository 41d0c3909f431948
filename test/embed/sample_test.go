package embed

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/sample-apiserver/pkg/apis/wardle/v1alpha1"
	"k8s.io/sample-apiserver/pkg/generated/clientset/versioned"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/test/e2e/harness"
	"github.com/regent-project/regent/test/etcdtest"
)

// sample is a replica of examples/apiserver, in a process of its own.
type sample struct {
	t      *testing.T
	args   []string
	cmd    *exec.Cmd
	log    *text
	client versioned.Interface
}

// text is what a process has written so far.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *text) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *text) has(words string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Contains(l.b.Bytes(), []byte(words))
}

// startSamples starts a number of replicas on an etcd.
func startSamples(t *testing.T, way storagebackend.TransportConfig, n int) []*sample {
	t.Helper()
	binary, secret := harness.Program(t, "apiserver"), filepath.Join(t.TempDir(), "secret")
	random := make([]byte, 32)
	_, _ = rand.Read(random)
	if err := os.WriteFile(secret, []byte(hex.EncodeToString(random)), 0o600); err != nil {
		t.Fatal(err)
	}
	var replicas []*sample
	for _, port := range harness.FreePorts(t, n) {
		s := &sample{t: t, args: []string{
			binary, "--etcd-servers=" + way.ServerList[0], "--etcd-cafile=" + way.TrustedCAFile, "--etcd-certfile=" + way.CertFile, "--etcd-keyfile=" + way.KeyFile,
			"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port), "--cert-dir=" + t.TempDir(), "--probe-secret=" + secret,
		}}
		config := &rest.Config{Host: fmt.Sprintf("https://127.0.0.1:%d", port), TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: -1, WarningHandler: rest.NoWarnings{}}
		var err error
		if s.client, err = versioned.NewForConfig(config); err != nil {
			t.Fatal(err)
		}
		s.start()
		t.Cleanup(s.kill)
		replicas = append(replicas, s)
	}
	for _, s := range replicas {
		eventually(t, "a replica serves", func() bool { _, err := s.flunders(); return err == nil })
	}
	return replicas
}

func (s *sample) start() {
	s.t.Helper()
	s.log = &text{}
	s.cmd = exec.Command(s.args[0], s.args[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = io.Discard, s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *sample) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// kill kills the process, unless it has ended.
func (s *sample) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func (s *sample) flunders() (*v1alpha1.FlunderList, error) {
	return s.client.WardleV1alpha1().Flunders("default").List(s.t.Context(), metav1.ListOptions{})
}

// stamped creates a Flunder through a replica, and returns the term that the leader writes onto it.
func (s *sample) stamped(name string) (term string) {
	s.t.Helper()
	flunders := s.client.WardleV1alpha1().Flunders("default")
	eventually(s.t, name+" is created", func() bool {
		_, err := flunders.Create(s.t.Context(), flunder(name, ""), metav1.CreateOptions{})
		return err == nil
	})
	eventually(s.t, name+" is stamped", func() bool {
		f, err := flunders.Get(s.t.Context(), name, metav1.GetOptions{})
		if err == nil {
			term = f.Labels["term"]
		}
		return term != ""
	})
	return term
}

// leads reports whether a replica leads, and has not ended its term.
func (s *sample) leads() bool { return s.log.has(`"Leading"`) && !s.log.has(`"The term has ended"`) }

// apart returns the replica that leads, and another one.
func apart(t *testing.T, replicas []*sample) (leader, other *sample) {
	t.Helper()
	eventually(t, "one leads", func() bool {
		for i, s := range replicas {
			if s.leads() {
				leader, other = s, replicas[1-i]
			}
		}
		return leader != nil
	})
	return leader, other
}

func TestAReplicaOfTheSampleIsFollowedWhenItIsKilledAndWhenItStops(t *testing.T) {
	replicas := startSamples(t, etcdtest.Start(t), 2)
	leader, other := apart(t, replicas)
	if first := leader.stamped("a"); first != "1" {
		t.Errorf("the first term is %s", first)
	}
	began := time.Now()
	leader.kill()
	eventually(t, "the other leads", other.leads)
	t.Logf("kill -9: the other leads after %v", time.Since(began).Round(time.Millisecond))
	if second := other.stamped("b"); second != "2" {
		t.Errorf("the second term is %s", second)
	}
	leader.start()
	eventually(t, "it is back", func() bool { _, err := leader.flunders(); return err == nil && leader.log.has("Leader changed") })
	began = time.Now()
	other.signal(syscall.SIGTERM)
	eventually(t, "the first leads again", leader.leads)
	t.Logf("SIGTERM: the other leads after %v", time.Since(began).Round(time.Millisecond))
	if err := other.cmd.Wait(); err != nil {
		t.Errorf("a replica that was asked to stop ends with %v", err)
	}
	if third := leader.stamped("c"); third != "3" {
		t.Errorf("the third term is %s", third)
	}
}

// A leader is stopped while its controller writes, another one leads, and the first goes on where it was. etcd's
// history says who wrote what.
func TestAReplicaOfTheSampleThatWasPausedWritesNothingLate(t *testing.T) {
	// the second time standbys wait for the lease to expire, because they were wrong about a death before
	const rounds = 2
	way := etcdtest.Start(t)
	replicas := startSamples(t, way, 2)
	asking, stop := context.WithCancel(t.Context())
	var users sync.WaitGroup
	for n, s := range replicas {
		users.Go(func() { // what there is to stamp: each replica's user, for as long as that answers
			for i := 0; asking.Err() == nil; i++ {
				ctx, cancel := context.WithTimeout(asking, time.Second)
				_, _ = s.client.WardleV1alpha1().Flunders("default").Create(ctx, flunder(fmt.Sprintf("u%d-%d", n, i), ""), metav1.CreateOptions{})
				cancel()
				time.Sleep(2 * time.Millisecond) // the replicas share two CPUs
			}
		})
	}
	for round := range rounds {
		leader, other := apart(t, replicas)
		eventually(t, "it stamps", func() bool { return leader.log.has(`"Stamped"`) })
		began := time.Now()
		leader.signal(syscall.SIGSTOP)
		eventually(t, "the other leads", other.leads)
		t.Logf("paused: the other leads after %v", time.Since(began).Round(time.Millisecond))
		eventually(t, "it stamps", func() bool { return other.log.has(`"Stamped"`) })
		leader.signal(syscall.SIGCONT)
		eventually(t, "the first knows that its term is over", func() bool { return leader.log.has(`"The term has ended"`) })
		if round < rounds-1 { // the log begins anew with the process
			leader.kill()
			leader.start()
			eventually(t, "it follows", func() bool { return leader.log.has("Leader changed") })
		}
	}
	stop()
	users.Wait()
	w := &world{t: t, way: way}
	terms, stamps, late := history(t, w.dial())
	if terms <= rounds || stamps < terms {
		t.Errorf("%d terms, %d stamps", terms, stamps)
	}
	if len(late) > 0 {
		t.Errorf("%d stamps came late, the first: %v", len(late), late[0])
	}
	t.Logf("%d stamps in %d terms, %d of them late", stamps, terms, len(late))
}

// history reads etcd's: how many terms there were, how often a Flunder was stamped, and which were stamped when a later
// term had begun.
func history(t *testing.T, etcd *clientv3.Client) (terms, stamps int, late []string) {
	t.Helper()
	now, err := etcd.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	current, known := 0, map[string]string{}
	for resp := range etcd.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		if err := resp.Err(); err != nil {
			t.Fatal(err)
		}
		for _, e := range resp.Events {
			var f v1alpha1.Flunder
			if json.Unmarshal(e.Kv.Value, &f) == nil && f.Kind == "Flunder" {
				if term := f.Labels["term"]; term != "" && term != known[f.Name] {
					known[f.Name] = term
					if stamps++; term != strconv.Itoa(current) {
						late = append(late, fmt.Sprintf("%s with term %s in term %d", f.Name, term, current))
					}
				}
				continue
			}
			obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(e.Kv.Value, nil, nil)
			if lease, ok := obj.(*coordinationv1.Lease); err == nil && ok && ptr.Deref(lease.Spec.HolderIdentity, "") != "" {
				if epoch := int(ptr.Deref(lease.Spec.LeaseTransitions, 0)); epoch > current {
					current = epoch
					terms++
				}
			}
		}
		if n := len(resp.Events); n > 0 && resp.Events[n-1].Kv.ModRevision >= now.Header.Revision {
			return terms, stamps, late
		}
	}
	t.Fatal("the history ends early")
	return 0, 0, nil
}
