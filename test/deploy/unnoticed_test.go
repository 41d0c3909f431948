package deploy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// proxyDelay is how long those who send requests take to learn that a pod is one of the Service's, or is not any more.
const proxyDelay = time.Second

// endpoints are a Service's addresses, which take connections in turn.
type endpoints struct {
	mu    sync.Mutex
	of    []string
	taken int
}

// tell adds or removes an address when those who send requests have learned of it.
func (e *endpoints) tell(address string, ready bool) {
	time.AfterFunc(proxyDelay, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.of = slices.DeleteFunc(e.of, func(a string) bool { return a == address })
		if ready {
			e.of = append(e.of, address)
		}
	})
}

func (e *endpoints) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	e.mu.Lock()
	if len(e.of) == 0 {
		e.mu.Unlock()
		return nil, errors.New("the Service has no endpoint")
	}
	address := e.of[e.taken%len(e.of)]
	e.taken++
	e.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// member is a pod of a StatefulSet, on a machine of its own.
type member struct {
	*process
	name, host string
	port       int
	spec       corev1.PodSpec
	service    *endpoints
	probes     *http.Client
}

func (m *member) address() string { return fmt.Sprintf("%s:%d", m.host, m.port) }

// probe asks once, as a kubelet does: any answer below 400 in time is a success, whoever signed the certificate.
func (m *member) probe(ctx context.Context, p *corev1.Probe) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(max(1, p.TimeoutSeconds))*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+m.address()+p.HTTPGet.Path, nil)
	if err != nil {
		return false
	}
	answer, err := m.probes.Do(request)
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode < http.StatusBadRequest
}

// watch asks at each of the probe's periods, and says when the probe has passed or failed as often as it must.
func (m *member) watch(ctx context.Context, p *corev1.Probe, changed func(passes bool)) {
	threshold := max(p.FailureThreshold, 1)
	if p.FailureThreshold == 0 {
		threshold = 3
	}
	ticker := time.NewTicker(time.Duration(max(p.PeriodSeconds, 1)) * time.Second)
	defer ticker.Stop()
	passes, failed := false, int32(0)
	for {
		switch ok := m.probe(ctx, p); {
		case ctx.Err() != nil:
			return
		case ok && !passes:
			passes, failed = true, 0
			changed(true)
		case ok:
			failed = 0
		default:
			if failed++; failed == threshold {
				passes = false
				changed(false)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// start runs the pod's containers and probes, and returns when the pod is ready. stop does what a kubelet does with a
// pod that is deleted: SIGTERM at once, while others learn of it, and SIGKILL after the grace period.
func (m *member) start(t *testing.T) (stop func()) {
	t.Helper()
	for _, c := range m.spec.InitContainers {
		m.run(t, slices.Clone(c.Args)...)
	}
	container := m.spec.Containers[0]
	args := slices.Clone(container.Args)
	for n := range args {
		args[n] = strings.NewReplacer("$(POD_IP)", m.host, "$(POD_NAME)", m.name, "$(POD_NAMESPACE)", "regent", "=0.0.0.0", "="+m.host).Replace(args[n])
	}
	var log bytes.Buffer
	replica := m.outside(context.WithoutCancel(t.Context()), args...)
	replica.Stdout, replica.Stderr = &log, &log
	if err := replica.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- replica.Wait() }()

	ctx, deleted := context.WithCancel(context.WithoutCancel(t.Context()))
	var kubelet sync.WaitGroup
	started, ready := make(chan struct{}), make(chan struct{}, 1)
	begun, cancel := context.WithCancel(ctx)
	kubelet.Go(func() {
		m.watch(begun, container.StartupProbe, func(passes bool) {
			cancel()
			if passes {
				close(started)
			}
		})
	})
	kubelet.Go(func() {
		select {
		case <-ctx.Done():
			return
		case <-started:
		}
		kubelet.Go(func() {
			m.watch(ctx, container.LivenessProbe, func(passes bool) {
				if !passes {
					t.Errorf("%s would be killed: it is not live", m.name)
				}
			})
		})
		m.watch(ctx, container.ReadinessProbe, func(passes bool) {
			m.service.tell(m.address(), passes)
			if passes {
				select {
				case ready <- struct{}{}:
				default:
				}
			}
		})
	})
	stop = sync.OnceFunc(func() {
		m.service.tell(m.address(), false)
		err := replica.Process.Signal(syscall.SIGTERM)
		deleted()
		kubelet.Wait()
		select {
		case ends := <-ended:
			err = errors.Join(err, ends)
		case <-time.After(time.Duration(*m.spec.TerminationGracePeriodSeconds) * time.Second):
			_ = replica.Process.Kill()
			err = errors.Join(err, errors.New("killed after the grace period"), <-ended)
		}
		if err != nil {
			t.Errorf("%s stopped with %v\n%s", m.name, err, tail(&log))
		}
	})
	t.Cleanup(stop)
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		t.Fatalf("%s ended: %v", m.name, err)
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s is not ready", m.name)
	}
	return stop
}

// load is an open loop of requests through a Service: it does not wait for answers before it sends the next one.
type load struct {
	// all with HTTP/2, and connections of their own; the first connects anew for each request
	clients []*http.Client
	url     string
	sent    atomic.Int64
	mu      sync.Mutex
	failed  []error
}

func newLoad(t *testing.T, config *rest.Config, service *endpoints) *load {
	t.Helper()
	l := &load{url: config.Host}
	for range 4 {
		own := rest.CopyConfig(config)
		own.Dial = service.dial
		client, err := rest.HTTPClientFor(own)
		if err != nil {
			t.Fatal(err)
		}
		client.Timeout = 30 * time.Second
		t.Cleanup(client.CloseIdleConnections)
		l.clients = append(l.clients, client)
	}
	return l
}

// once sends the nth request. Any other answer than a success is a failure, also one that a client may try again.
func (l *load) once(n int64) error {
	client, path, method, body := l.clients[n%int64(len(l.clients))], "/api/v1/namespaces/default", http.MethodGet, ""
	if n%5 == 0 {
		path, method = "/api/v1/namespaces/default/configmaps", http.MethodPost
		body = fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"sent-%d"}}`, n)
	}
	request, err := http.NewRequest(method, l.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	said, err := io.ReadAll(answer.Body)
	if _ = answer.Body.Close(); err != nil || answer.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: %s, %v: %s", method, path, answer.Status, err, said)
	}
	return nil
}

// begin sends until stop is called, which returns when all answers are there.
func (l *load) begin(every time.Duration) (stop func()) {
	done, all := make(chan struct{}), sync.WaitGroup{}
	all.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			n := l.sent.Add(1)
			all.Go(func() {
				if n%int64(len(l.clients)) == 0 {
					l.clients[0].CloseIdleConnections() // so that this one connects anew
				}
				if err := l.once(n); err != nil {
					l.mu.Lock()
					defer l.mu.Unlock()
					l.failed = append(l.failed, fmt.Errorf("request %d: %w", n, err))
				}
			})
		}
	})
	return sync.OnceFunc(func() { close(done); all.Wait() })
}

// Two replicas with the flags, probes and times of the chart's defaults are replaced one after the other, as
// Kubernetes replaces a StatefulSet's, under requests: none of them fails.
func TestARollOfTheChartIsUnnoticed(t *testing.T) {
	port := freePort(t)
	all := objects(t, map[string]any{
		"image": map[string]any{"repository": "regent", "tag": "v1"}, "baseURL": fmt.Sprintf("https://127.0.0.1:%d", port),
		"shard": map[string]any{
			"port": port, "probePort": freePort(t),
			"etcd": map[string]any{"servers": []any{startEtcd(t)}}, "pki": map[string]any{"create": true},
		},
	})
	set, keys := of[*appsv1.StatefulSet](all)[0], of[*corev1.Secret](all)[0].Data
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	service, image := &endpoints{}, readImage(t, builtImage(t))
	var members []*member
	for n := range int(*set.Spec.Replicas) {
		machine := &process{root: unpackImage(t, image)}
		machine.mount(t, "/secrets/pki", keys)
		members = append(members, &member{machine, fmt.Sprintf("shard-%d", n), fmt.Sprintf("127.0.0.%d", n+2), port, set.Spec.Template.Spec, service, insecure})
	}
	var stops []func()
	for _, m := range members {
		stops = append(stops, m.start(t))
	}
	keysAt := takesKeys(t, &onePod{members[0].process, port, keys, set.Spec.Template.Spec}).keys
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(keysAt, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	load := newLoad(t, config, service)
	stop := load.begin(20 * time.Millisecond)
	defer stop()
	available := time.Duration(set.Spec.MinReadySeconds) * time.Second
	for n := len(members) - 1; n >= 0; n-- {
		stops[n]()
		stops[n] = members[n].start(t)
		<-time.After(available) // the StatefulSet's controller replaces the next one then
	}
	stop()
	t.Logf("%d requests, %d failed", load.sent.Load(), len(load.failed))
	if load.sent.Load() < 100 {
		t.Errorf("only %d requests were sent", load.sent.Load())
	}
	for _, err := range load.failed[:min(len(load.failed), 10)] {
		t.Error(err)
	}
	for _, stop := range stops {
		stop()
	}
}
