package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/regent-project/regent/test/e2e/harness"
)

const (
	// verbClients is how many clients ask at once, each again as soon as it is answered. Each has a connection.
	verbClients = 16
	// listed is how many objects a list has.
	listed = 100
	// verbWatches is how many watches each client has open while verbWriters of them patch objects.
	verbWatches, verbWriters = 10, 4
	// gadgets is the resource of custom objects.
	gadgets, gadgetGroup = "gadgets", "bench.example"
)

// BenchmarkVerbs is a replica of Regent beside a kube-apiserver as it comes, on the same etcd in one run: how many
// requests of each verb are answered in a second, and what CPU the server takes for one. The clients are ordinary users
// with RBAC and tokens, who send and get JSON. The two take turns. It prints a table.
func BenchmarkVerbs(b *testing.B) {
	if _, err := build(); err != nil {
		b.Fatal(err)
	}
	etcd := harness.StartEtcd(b)
	accounts := newAccounts(b)
	for i := range verbClients {
		accounts.add(b, fmt.Sprintf("%s,user-%d,%d,%q\n", token(i), i, i, group))
	}
	sides := []*side{kubernetesSide(b, etcd, accounts), regentSide(b, etcd, accounts)}
	kinds := []kind{
		{"ConfigMap", "/api/v1/namespaces/default/configmaps", func(name string) map[string]any {
			return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": map[string]any{"text": strings.Repeat("x", size), "n": "0"}}
		}, "data"},
		{"custom object", "/apis/" + gadgetGroup + "/v1/namespaces/default/" + gadgets, func(name string) map[string]any {
			return map[string]any{"apiVersion": gadgetGroup + "/v1", "kind": "Gadget", "metadata": map[string]any{"name": name}, "spec": map[string]any{"text": strings.Repeat("x", size), "n": "0"}}
		}, "spec"},
	}
	var table strings.Builder
	table.WriteString("| of a | verb | kube-apiserver: a second; CPU of one | Regent: a second; CPU of one | throughput, ratio (range) | CPU, ratio |\n|---|---|---|---|---|---|\n")
	for _, kind := range kinds {
		results := map[string][2][]took{} // by verb, of each side
		for round := range *verbRounds {
			for i := range sides {
				at := (i + round) % len(sides) // nobody is always the first
				for verb, t := range sides[at].turn(b, kind, round) {
					both := results[verb]
					both[at] = append(both[at], t)
					results[verb] = both
				}
			}
		}
		for _, verb := range verbs {
			table.WriteString(verbRow(kind.name, verb, results[verb]))
		}
	}
	b.ReportMetric(0, "ns/op")
	fmt.Printf("\n%d clients, %v for each verb, %d rounds; medians.\n\n%s\n%s, kube-apiserver %s.\n\n",
		verbClients, *verbFor, *verbRounds, table.String(), versions(b), sides[0].version)
}

// verbs are what is compared, in the order of the table.
var verbs = []string{"create", "get", "update", "patch", "apply", "list of 100", "event of a watch", "delete"}

// kind is a resource whose objects are asked for.
type kind struct {
	name, path string
	object     func(name string) map[string]any
	content    string // the field with its content
}

// side is one of the two servers.
type side struct {
	b       *testing.B // ends requests that are under way when the benchmark does
	url     string     // below which all paths are
	process *harness.Process
	clients []*http.Client
	version string
	replica *harness.Replica // nil: it is a kube-apiserver
}

// took is what a verb took.
type took struct {
	rate float64 // in a second
	cpu  time.Duration
}

func kubernetesSide(b *testing.B, etcd *harness.Etcd, a accounts) *side {
	b.Helper()
	if err := makeKubernetes(); err != nil {
		b.Fatal(err)
	}
	process, config := a.serve(b, "kube-apiserver", harness.Binary("kube-apiserver"), etcd.URL, "--etcd-prefix=/kubernetes")
	return newSide(b, config.Host, process, config)
}

// regentSide is a replica alone, with default flags.
func regentSide(b *testing.B, etcd *harness.Etcd, a accounts) *side {
	b.Helper()
	shard := harness.NewShard(etcd.URL)
	shard.Timings = harness.Default
	r := shard.Start(b, "regent", "--token-auth-file="+a.tokens)
	r.WaitRoot()
	s := newSide(b, r.URL+"/clusters/root", r.Process, r.AdminConfig("root"))
	s.replica = r
	return s
}

func newSide(b *testing.B, url string, process *harness.Process, admin *restclient.Config) *side {
	b.Helper()
	s := &side{b: b, url: url, process: process}
	for range verbClients {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, ResponseHeaderTimeout: time.Minute}
		b.Cleanup(transport.CloseIdleConnections)
		s.clients = append(s.clients, &http.Client{Transport: transport, Timeout: time.Minute})
	}
	kube, err := kubernetes.NewForConfig(admin)
	if err != nil {
		b.Fatal(err)
	}
	version, err := kube.Discovery().ServerVersion()
	if err != nil {
		b.Fatal(err)
	}
	s.version = version.GitVersion
	if _, err := kube.RbacV1().ClusterRoleBindings().Create(b.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bench-users"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	s.define(b, dynamic.NewForConfigOrDie(admin))
	harness.Eventually(b, "users may ask for all kinds", func() bool {
		for _, path := range []string{"/api/v1/namespaces/default", "/apis/" + gadgetGroup + "/v1/namespaces/default/" + gadgets} {
			if s.ask(0, http.MethodGet, path, "", nil) != http.StatusOK {
				return false
			}
		}
		return true
	})
	return s
}

// define defines gadgets.
func (s *side) define(b *testing.B, client dynamic.Interface) {
	b.Helper()
	text := map[string]any{"type": "string"}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": gadgets + "." + gadgetGroup},
		"spec": map[string]any{
			"group": gadgetGroup, "scope": "Namespaced", "names": map[string]any{"plural": gadgets, "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{
				"type": "object", "properties": map[string]any{"spec": map[string]any{"type": "object", "properties": map[string]any{"text": text, "n": text}}},
			}}}},
		},
	}}
	resource := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if _, err := client.Resource(resource).Create(b.Context(), definition, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

// turn has the clients make requests of each verb for a while.
func (s *side) turn(b *testing.B, k kind, round int) map[string]took {
	b.Helper()
	name := func(client, n int) string { return fmt.Sprintf("o-%d-%d-%d", round, client, n) }
	changed := func(client, n, value int, version string) []byte {
		object := k.object(name(client, n))
		object[k.content].(map[string]any)["n"] = fmt.Sprint(value)
		if version != "" { // updates of custom objects need it
			object["metadata"].(map[string]any)["resourceVersion"] = version
		}
		return encoded(object)
	}
	merge := func(value int) []byte {
		return encoded(map[string]any{k.content: map[string]any{"n": fmt.Sprint(value)}})
	}
	out := map[string]took{}
	profiled := func(verb string, measure func() took) {
		defer s.profile(k.name + " " + verb)()
		out[verb] = measure()
	}
	made, versions := make([]int, verbClients), make([][]string, verbClients)
	profiled("create", func() took {
		return s.measure(b, func(client, n int) int {
			status, answer := s.answerOf(client, http.MethodPost, k.path, "application/json", encoded(k.object(name(client, n))))
			made[client], versions[client] = n+1, append(versions[client], versionIn(answer))
			return status
		})
	})
	profiled("get", func() took {
		return s.measure(b, func(client, n int) int {
			return s.ask(client, http.MethodGet, k.path+"/"+name(client, n%made[client]), "", nil)
		})
	})
	profiled("update", func() took {
		return s.measure(b, func(client, n int) int {
			of := n % made[client]
			status, answer := s.answerOf(client, http.MethodPut, k.path+"/"+name(client, of), "application/json", changed(client, of, n+1, versions[client][of]))
			versions[client][of] = versionIn(answer)
			return status
		})
	})
	profiled("patch", func() took {
		return s.measure(b, func(client, n int) int {
			return s.ask(client, http.MethodPatch, k.path+"/"+name(client, n%made[client]), "application/merge-patch+json", merge(-n-1))
		})
	})
	profiled("apply", func() took {
		return s.measure(b, func(client, n int) int {
			return s.ask(client, http.MethodPatch, k.path+"/"+name(client, n%made[client])+"?fieldManager=bench&force=true", "application/apply-patch+yaml", changed(client, n%made[client], n, ""))
		})
	})
	profiled("delete", func() took {
		return s.measure(b, func(client, n int) int {
			if n >= made[client] {
				return 0 // there are no more
			}
			return s.ask(client, http.MethodDelete, k.path+"/"+name(client, n), "", nil)
		})
	})
	s.leave(b, k, listed)
	profiled("list of 100", func() took {
		return s.measure(b, func(client, _ int) int { return s.ask(client, http.MethodGet, k.path, "", nil) })
	})
	profiled("event of a watch", func() took { return s.watch(b, k, merge) })
	s.leave(b, k, 0)
	return out
}

// profile saves what the replica's CPU is used for, if somebody wants it. The function that it returns waits for that.
func (s *side) profile(name string) (wait func()) {
	if *verbProfiles == "" || s.replica == nil {
		return func() {}
	}
	file := filepath.Join(*verbProfiles, strings.ReplaceAll(name, " ", "-")+".pprof")
	var saving sync.WaitGroup
	saving.Go(func() {
		if err := s.replica.SaveProfile(fmt.Sprintf("profile?seconds=%d", max(1, int(verbFor.Seconds()))), file); err != nil {
			progress("%v", err)
		}
	})
	return saving.Wait
}

// leave has so many objects be there, and no others.
func (s *side) leave(b *testing.B, k kind, n int) {
	b.Helper()
	if status := s.ask(0, http.MethodDelete, k.path, "", nil); status != http.StatusOK {
		b.Fatalf("the objects cannot be deleted: %d", status)
	}
	for i := range n {
		if status := s.ask(i%verbClients, http.MethodPost, k.path, "application/json", encoded(k.object(fmt.Sprintf("listed-%d", i)))); status != http.StatusCreated {
			b.Fatalf("an object cannot be made: %d", status)
		}
	}
}

// measure has all clients ask for a while. ask returns the status of an answer, or 0 if there is nothing more to ask.
func (s *side) measure(b *testing.B, ask func(client, n int) int) took {
	b.Helper()
	var answered, failed atomic.Int64
	var all sync.WaitGroup
	before, began := s.process.CPU(), time.Now()
	for client := range verbClients {
		all.Go(func() {
			for n := 0; time.Since(began) < *verbFor; n++ {
				status := ask(client, n)
				if status == 0 {
					return
				}
				if code(status).failed() {
					failed.Store(int64(max(status, 1)))
				}
				answered.Add(1)
			}
		})
	}
	all.Wait()
	n := answered.Load()
	if status := failed.Load(); status != 0 || n == 0 {
		b.Fatalf("of %d requests some failed: %d", n, status)
	}
	return took{float64(n) / time.Since(began).Seconds(), (s.process.CPU() - before) / time.Duration(n)}
}

// watch has clients watch all objects while some of them patch them: how many events come in a second.
func (s *side) watch(b *testing.B, k kind, merge func(int) []byte) took {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	var events atomic.Int64
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	for client := range verbClients {
		for range verbWatches {
			body := s.open(ctx, b, client, k.path+"?watch=true&resourceVersion=0&allowWatchBookmarks=false")
			watching.Go(func() {
				defer body.Close()
				count := &lineCounter{&events}
				_, _ = io.Copy(count, body)
			})
		}
	}
	// Each begins with the objects that there are.
	harness.Eventually(b, "all watches have begun", func() bool { return events.Load() >= verbClients*verbWatches*listed })
	began, before, first := time.Now(), s.process.CPU(), events.Load()
	var written atomic.Int64
	var writing sync.WaitGroup
	for client := range verbWriters {
		writing.Go(func() {
			for n := client; time.Since(began) < *verbFor; n += verbWriters {
				if status := s.ask(client, http.MethodPatch, fmt.Sprintf("%s/listed-%d", k.path, n%listed), "application/merge-patch+json", merge(n+1)); status != http.StatusOK {
					b.Errorf("a patch failed: %d", status)
					return
				}
				written.Add(1)
			}
		})
	}
	writing.Wait()
	if b.Failed() {
		b.FailNow()
	}
	all := written.Load() * verbClients * verbWatches
	harness.Eventually(b, "all events have come", func() bool { return events.Load()-first >= all })
	return took{float64(all) / time.Since(began).Seconds(), (s.process.CPU() - before) / time.Duration(all)}
}

// lineCounter counts lines: each event of a watch is one.
type lineCounter struct{ n *atomic.Int64 }

// Write implements io.Writer.
func (l *lineCounter) Write(p []byte) (int, error) {
	l.n.Add(int64(bytes.Count(p, []byte{'\n'})))
	return len(p), nil
}

// ask makes a request, and reads all of the answer. It returns the status; if there is no answer, none that there is.
func (s *side) ask(client int, method, path, contentType string, body []byte) (status int) {
	status, _ = s.answerOf(client, method, path, contentType, body)
	return status
}

// answerOf is ask, with the answer.
func (s *side) answerOf(client int, method, path, contentType string, body []byte) (status int, answer []byte) {
	resp, err := s.clients[client].Do(s.request(s.b.Context(), client, method, path, contentType, body))
	if err != nil {
		return math.MaxInt16, nil
	}
	defer func() { _ = resp.Body.Close() }()
	if answer, err = io.ReadAll(resp.Body); err != nil {
		return math.MaxInt16, nil
	}
	return resp.StatusCode, answer
}

// versionIn returns the resourceVersion of an object in JSON. To decode all of it would take longer than the server.
func versionIn(object []byte) string {
	_, rest, _ := bytes.Cut(object, []byte(`"resourceVersion":"`))
	version, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(version)
}

// open begins a watch.
func (s *side) open(ctx context.Context, b *testing.B, client int, path string) io.ReadCloser {
	b.Helper()
	unlimited := &http.Client{Transport: s.clients[client].Transport}
	resp, err := unlimited.Do(s.request(ctx, client, http.MethodGet, path, "", nil))
	if err != nil {
		b.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		b.Fatalf("a watch does not begin: %s", resp.Status)
	}
	return resp.Body
}

func (s *side) request(ctx context.Context, client int, method, path, contentType string, body []byte) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		panic(err) // our own URLs
	}
	req.Header.Set("Authorization", "Bearer "+token(client))
	req.Header.Set("Accept", "application/json")
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	return req
}

func encoded(object map[string]any) []byte {
	data, err := json.Marshal(object)
	if err != nil {
		panic(err) // our own objects
	}
	return data
}

// verbRow compares the two sides in one line of the table.
func verbRow(kind, verb string, both [2][]took) string {
	rate := func(all []took) float64 {
		return middle(all, func(t took) float64 { return t.rate })
	}
	cpu := func(all []took) float64 {
		return middle(all, func(t took) float64 { return float64(t.cpu) / float64(time.Millisecond) })
	}
	var each []float64
	for i := range both[0] {
		each = append(each, both[1][i].rate/both[0][i].rate)
	}
	return fmt.Sprintf("| %s | %s | %.0f; %.3f ms | %.0f; %.3f ms | %.2f (%.2f to %.2f) | %.2f |\n", kind, verb,
		rate(both[0]), cpu(both[0]), rate(both[1]), cpu(both[1]),
		middle(each, func(f float64) float64 { return f }), slices.Min(each), slices.Max(each), cpu(both[1])/cpu(both[0]))
}

// middle is the median of what of returns.
func middle[T any](all []T, of func(T) float64) float64 {
	values := make([]float64, 0, len(all))
	for _, one := range all {
		values = append(values, of(one))
	}
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// add adds lines to the file of tokens.
func (a accounts) add(b testing.TB, lines string) {
	b.Helper()
	file, err := os.OpenFile(a.tokens, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.WriteString(lines); err != nil {
		b.Fatal(err)
	}
}
