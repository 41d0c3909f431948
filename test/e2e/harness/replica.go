package harness

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Resources of kcp's groups.
var (
	Workspaces      = schema.GroupVersionResource{Group: "tenancy.kcp.io", Version: "v1alpha1", Resource: "workspaces"}
	LogicalClusters = schema.GroupVersionResource{Group: "core.kcp.io", Version: "v1alpha1", Resource: "logicalclusters"}
)

// Replica is a server process, and knows how to be started again on its port and root directory.
type Replica struct {
	*Process
	URL, Root string
	// Binary is what Again starts, the shard's by default.
	Binary string

	t     testing.TB
	shard *Shard
	name  string
	args  []string
	port  int
	n     int
	admin *http.Client
	// byContent has configurations hold the credentials themselves, and not the names of their files.
	byContent bool
	pid       atomic.Int64 // of the process now; 0 before the first
}

// Name is the one it was started with.
func (r *Replica) Name() string { return r.name }

// Timings are those of its election.
func (r *Replica) Timings() Timings { return r.shard.Timings }

// Descriptors counts what the process has open: connections, files.
func (r *Replica) Descriptors() int {
	r.t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.PID()))
	if err != nil {
		r.t.Fatal(err)
	}
	return len(open)
}

// Again starts it anew, after it has ended, and does not wait.
func (r *Replica) Again() {
	r.t.Helper()
	r.n++
	binary := r.shard.Binary
	if r.Binary != "" {
		binary = r.Binary
	}
	r.Process = Start(r.t, fmt.Sprintf("%s-%d", r.name, r.n), binary, append(r.shard.flags(r.Root, r.port), r.args...)...)
	r.pid.Store(int64(r.PID()))
}

// AgainWith is Again with other arguments than it was started with, also later.
func (r *Replica) AgainWith(args ...string) {
	r.t.Helper()
	r.args = args
	r.Again()
}

// AgainAlso is Again with further arguments, also later.
func (r *Replica) AgainAlso(args ...string) {
	r.t.Helper()
	r.AgainWith(slices.Concat(r.args, args)...)
}

// WaitReady waits for /readyz.
func (r *Replica) WaitReady() {
	r.t.Helper()
	Eventually(r.t, r.name+" is ready", func() bool {
		if !r.Alive() {
			r.t.Fatalf("%s ended with %d while starting", r.name, r.Wait())
		}
		return r.Status("/readyz") == http.StatusOK
	})
}

// Config is that of the ordinary user, for a logical cluster, by path or name; the admin's for what is in no cluster of
// users. It has no rate limit.
func (r *Replica) Config(cluster string) *rest.Config {
	if !ofUsers(cluster) || r.byContent {
		return r.AdminConfig(cluster)
	}
	r.letIn()
	return credentialsIn(r.t, r.adminRoot()).config(r.URL, cluster)
}

// AdminConfig is the admin's, for any cluster.
func (r *Replica) AdminConfig(cluster string) *rest.Config {
	pki := filepath.Join(r.adminRoot(), "pki")
	config := &rest.Config{
		Host: r.URL + "/clusters/" + cluster,
		QPS:  -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAFile: filepath.Join(pki, "ca.crt"), CertFile: filepath.Join(pki, "admin.crt"), KeyFile: filepath.Join(pki, "admin.key"),
		},
	}
	if r.byContent {
		if err := rest.LoadTLSFiles(config); err != nil {
			r.t.Fatal(err)
		}
		config.CAFile, config.CertFile, config.KeyFile = "", "", ""
	}
	return config
}

// adminRoot is the root directory with the administrator's credentials.
func (r *Replica) adminRoot() string {
	if r.shard.admin != "" {
		return r.shard.admin
	}
	return r.Root
}

// Kube is a client for a logical cluster, and Dynamic another. They have Config's credentials.
func (r *Replica) Kube(cluster string) kubernetes.Interface {
	r.t.Helper()
	client, err := kubernetes.NewForConfig(r.Config(cluster))
	if err != nil {
		r.t.Fatal(err)
	}
	return client
}

// Dynamic is a client for a logical cluster.
func (r *Replica) Dynamic(cluster string) dynamic.Interface {
	r.t.Helper()
	client, err := dynamic.NewForConfig(r.Config(cluster))
	if err != nil {
		r.t.Fatal(err)
	}
	return client
}

// Get reads a path as the admin. The status is 0 if there was no answer.
func (r *Replica) Get(path string) (status int, body string) {
	if r.admin == nil {
		client, err := rest.HTTPClientFor(r.Config(""))
		if err != nil {
			return 0, err.Error() // its keys are not there yet
		}
		r.admin = client
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := r.admin.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}

// ReadKeysAgain has Get, and clients from now on, use the administrator's credentials that are in the files now.
// client-go would go on with connections that it has opened with those before.
func (r *Replica) ReadKeysAgain() { r.admin, r.byContent = nil, true }

// Status is Get's.
func (r *Replica) Status(path string) int {
	status, _ := r.Get(path)
	return status
}

// metrics reads one metric from /metrics. All of them are half a megabyte: to ask for all, many times a second, would
// cost the scenarios more CPU than all else that they do.
func (r *Replica) metrics(name string) (status int, body string) {
	query := url.Values{"name[]": {name}}
	return r.Get("/metrics?" + query.Encode())
}

// Metric reads a sample from /metrics, as in `go_goroutines` or `leader_election_master_status{name="x"}`.
func (r *Replica) Metric(sample string) (value float64, ok bool) {
	name, _, _ := strings.Cut(sample, "{")
	_, body := r.metrics(name)
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, sample+" "); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			return value, err == nil
		}
	}
	return 0, false
}

// MetricSum adds up the samples of a metric whose labels contain all of the given texts.
func (r *Replica) MetricSum(name string, labels ...string) (sum float64) {
	_, body := r.metrics(name)
lines:
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, name+"{") {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(line, label) {
				continue lines
			}
		}
		if value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64); err == nil {
			sum += value
		}
	}
	return sum
}

// Leads reports whether the replica says that it leads.
func (r *Replica) Leads() bool {
	v, _ := r.Metric(`leader_election_master_status{name="regent-controllers"}`)
	return v == 1
}

// Goroutines counts the replica's goroutines, and those among them with a text in their stacks.
func (r *Replica) Goroutines(text string) (all, with int) {
	r.t.Helper()
	status, body := r.Get("/debug/pprof/goroutine?debug=2")
	if status != http.StatusOK {
		r.t.Fatalf("profile of %s: %d %s", r.name, status, body)
	}
	for stack := range strings.SplitSeq(body, "\n\n") {
		all++
		if strings.Contains(stack, text) {
			with++
		}
	}
	return all, with
}

// Heap returns the bytes in use on the replica's heap, after a garbage collection.
func (r *Replica) Heap() int {
	r.t.Helper()
	_, body := r.Get("/debug/pprof/heap?gc=1&debug=1")
	match := regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`).FindStringSubmatch(body)
	if match == nil {
		r.t.Fatalf("no HeapAlloc in the heap profile of %s", r.name)
	}
	n, err := strconv.Atoi(match[1])
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// SaveProfile writes one of the replica's profiles to a file: "heap?gc=1", "profile?seconds=10".
func (r *Replica) SaveProfile(name, path string) error {
	code, body := r.Get("/debug/pprof/" + name)
	if code != http.StatusOK {
		return fmt.Errorf("profile %s: %d %s", name, code, body)
	}
	return os.WriteFile(path, []byte(body), 0o600)
}

// Kubectl runs kubectl in a logical cluster, as the user of Config, and returns its output. A failure fails the test.
func (r *Replica) Kubectl(cluster string, args ...string) string {
	r.t.Helper()
	out, err := r.TryKubectl(cluster, "", args...)
	if err != nil {
		r.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// TryKubectl is Kubectl with input, and failures left to the caller.
func (r *Replica) TryKubectl(cluster, stdin string, args ...string) (string, error) {
	r.t.Helper()
	cmd := r.KubectlCommand(cluster, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// KubectlCommand is a kubectl that has not been started.
func (r *Replica) KubectlCommand(cluster string, args ...string) *exec.Cmd {
	if !ofUsers(cluster) {
		return r.AdminKubectl(cluster, args...)
	}
	r.letIn()
	return r.kubectl(credentialsIn(r.t, r.adminRoot()).kubeconfig(), cluster, args)
}

// AdminKubectl is KubectlCommand as the admin.
func (r *Replica) AdminKubectl(cluster string, args ...string) *exec.Cmd {
	return r.kubectl(filepath.Join(r.adminRoot(), "admin.kubeconfig"), cluster, args)
}

func (r *Replica) kubectl(kubeconfig, cluster string, args []string) *exec.Cmd {
	cmd := Command(r.t, "kubectl", append([]string{"--server=" + r.URL + "/clusters/" + cluster}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+r.Root)
	return cmd
}
