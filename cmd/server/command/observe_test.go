package command

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/regent-project/regent/cmd/server/face/view"
	"github.com/regent-project/regent/pkg/server/routing"
	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/pkg/server/status/statustest"
)

// fakeReplica answers as a replica of an installation.
type fakeReplica struct {
	*httptest.Server
	t *testing.T

	mu        sync.Mutex
	of        status.Installation
	prefix    string // before each path, as a front has it
	stepDowns []string
	asked     int
	onAsked   func(n int)
}

func startFake(t *testing.T, of status.Installation) *fakeReplica {
	f := &fakeReplica{t: t, of: of}
	f.Server = httptest.NewUnstartedServer(f)
	f.Config.ErrorLog = log.New(io.Discard, "", 0)
	f.StartTLS()
	t.Cleanup(f.Close)
	return f
}

// ServeHTTP implements http.Handler.
func (f *fakeReplica) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var answer any
	s := &f.of.Shards[0]
	switch strings.TrimPrefix(req.URL.Path, f.prefix) {
	case status.InstallationPath:
		f.asked++
		if f.onAsked != nil {
			f.onAsked(f.asked)
		}
		answer = f.of
	case status.ReplicaPath:
		answer = s.Replicas[1]
	case status.TermsPath:
		answer = status.Terms{Shard: s.Name, Terms: s.Terms}
	case routing.StepDownPath:
		body, _ := io.ReadAll(req.Body)
		f.stepDowns = append(f.stepDowns, string(body))
		answer = map[string]any{"replica": s.Leader, "epoch": s.Replicas[0].Election.Epoch}
		s.Replicas[1].Election.State, s.Replicas[1].Election.Epoch = "leading", s.Replicas[0].Election.Epoch+1
	default:
		http.Error(w, `{"paths": ["/api"]}`, http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(answer) // on an error the client has gone, as one that is interrupted
}

// kubeconfig writes a kubeconfig with contexts that lead to URLs, all with the authority of one server.
func (f *fakeReplica) kubeconfig(contexts map[string]string) string {
	f.t.Helper()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
	file := clientcmdapi.NewConfig()
	file.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: "t"}
	for name, url := range contexts {
		file.Clusters[name] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: authority}
		file.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: "admin"}
		file.CurrentContext = name
	}
	name := filepath.Join(f.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*file, name); err != nil {
		f.t.Fatal(err)
	}
	return name
}

// reachable gives all replicas of the first shard the fake's URL, so that they can be asked.
func reachable(f *fakeReplica) {
	for i := range f.of.Shards[0].Replicas {
		f.of.Shards[0].Replicas[i].URL = f.URL
	}
}

func now(of status.Installation) status.Installation { return statustest.At(of, time.Now()) }

func fault(t *testing.T, name string) status.Installation {
	for _, f := range statustest.Faults() {
		if f.Name == name {
			return f.Of
		}
	}
	t.Fatalf("no fault %q", name)
	return status.Installation{}
}

func TestScriptsKnowByTheExitCodeHowBadItIs(t *testing.T) {
	for _, c := range []struct {
		of   status.Installation
		args []string
		want int
	}{
		{statustest.Lone(), []string{"status"}, exitOK},
		{statustest.Three(), []string{"status", "-o", "yaml"}, exitOK},
		{fault(t, "versions differ"), []string{"status"}, exitOK},
		{fault(t, "one member of etcd hangs, dies, is slow or is cut off"), []string{"status"}, exitWarning},
		{fault(t, "every replica steps down for its own controllers"), []string{"status", "-o", "json"}, exitCritical},
		{fault(t, "a shard does not answer"), []string{"status"}, exitCritical},
		{fault(t, "a shard does not answer"), []string{"status", "--shard=us1"}, exitOK},
		{fault(t, "a shard does not hear another one"), []string{"status", "--shard=us1"}, exitWarning},
		{fault(t, "a shard does not hear another one"), []string{"status", "--shard=root"}, exitOK},
		{fault(t, "a controller stalls"), []string{"controllers"}, exitWarning},
		{fault(t, "a controller stalls"), []string{"controllers", "namespace", "--replica=" + statustest.A}, exitWarning},
		{fault(t, "one member of etcd hangs, dies, is slow or is cut off"), []string{"controllers"}, exitOK},
		{statustest.Lone(), []string{"status", "--replica=nobody"}, exitUsage},
		{statustest.Lone(), []string{"status", "--shard=none"}, exitUsage},
		{statustest.Lone(), []string{"status", "--context=none"}, exitUsage},
		{statustest.Lone(), []string{"status", "-o", "xml"}, exitUsage},
		{statustest.Lone(), []string{"controllers", "nothing"}, exitUsage},
		{statustest.Lone(), []string{"controllers", "a", "b"}, exitUsage},
		{statustest.Three(), []string{"terms"}, exitUsage},
		{statustest.Three(), []string{"step-down"}, exitUsage},
		{statustest.Lone(), []string{"top", "--sort=colour"}, exitUsage},
		{statustest.Lone(), []string{"top", "--by=colour"}, exitUsage},
		{statustest.Lone(), []string{"terms"}, exitOK},
	} {
		f := startFake(t, now(c.of))
		kubeconfig := f.kubeconfig(map[string]string{"system:admin": f.URL + "/clusters/system:admin"})
		var stdout, stderr bytes.Buffer
		if code := run(append(c.args, "--kubeconfig="+kubeconfig), &stdout, &stderr); code != c.want {
			t.Errorf("%q: exit code %d, want %d:\n%s%s", c.args, code, c.want, stdout.String(), stderr.String())
		}
		if c.want == exitUsage && strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%q: %s", c.args, stderr.String())
		}
	}
	for _, command := range []string{"status", "controllers", "doctor"} {
		var stdout, stderr bytes.Buffer
		if run([]string{command, "--help"}, &stdout, &stderr); !strings.Contains(stdout.String(), "Exit codes: 0") {
			t.Errorf("%s --help has no exit codes", command)
		}
	}
}

func TestAnotherReplicaIsAskedIfTheFirstDoesNotAnswer(t *testing.T) {
	f := startFake(t, now(statustest.Lone()))
	gone := startFake(t, status.Installation{})
	gone.Close()
	kubeconfig := f.kubeconfig(map[string]string{"system:admin": gone.URL + "/clusters/system:admin", "replica-1": f.URL + "/clusters/root", "other": "https://192.0.2.1"})
	var stdout, stderr bytes.Buffer
	if code := run([]string{"status", "--kubeconfig=" + kubeconfig}, &stdout, &stderr); code != exitOK {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
	if said := stderr.String(); !strings.Contains(said, gone.URL+" does not answer") || !strings.Contains(said, "asked "+f.URL+" (context replica-1 of the kubeconfig) instead") {
		t.Errorf("said %s", said)
	}
	var unanswered bytes.Buffer
	kubeconfig = f.kubeconfig(map[string]string{"system:admin": gone.URL + "/clusters/system:admin"})
	if code := run([]string{"status", "--kubeconfig=" + kubeconfig}, io.Discard, &unanswered); code != exitFailure {
		t.Errorf("exit code %d: %s", code, unanswered.String())
	}
	unanswered.Reset()
	kubeconfig = f.kubeconfig(map[string]string{"system:admin": gone.URL + "/clusters/system:admin", "replica-1": "https://127.0.0.1:1/clusters/root"})
	if code := run([]string{"status", "--kubeconfig=" + kubeconfig}, io.Discard, &unanswered); code != exitFailure || strings.Count(unanswered.String(), "\n") != 2 {
		t.Errorf("exit code %d; want a line for each of two servers: %s", code, unanswered.String())
	}
	unanswered.Reset()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	if code := run([]string{"status"}, io.Discard, &unanswered); code != exitFailure || !strings.Contains(unanswered.String(), "there is no context in "+os.Getenv("KUBECONFIG")) {
		t.Errorf("exit code %d: %s", code, unanswered.String())
	}
}

func TestAFrontIsAskedForTheShardOfTheContext(t *testing.T) {
	f := startFake(t, now(statustest.Lone()))
	f.prefix = "/shards/root"
	kubeconfig := f.kubeconfig(map[string]string{"system:admin": f.URL + "/shards/root/clusters/system:admin"})
	for _, more := range [][]string{nil, {"--server=" + f.URL}} {
		var stderr bytes.Buffer
		if code := run(append([]string{"status", "--kubeconfig=" + kubeconfig}, more...), io.Discard, &stderr); code != exitOK {
			t.Errorf("%q: exit code %d: %s", more, code, stderr.String())
		}
	}
}

func TestProgramsGetWhatTheServerAnswers(t *testing.T) {
	f := startFake(t, now(statustest.Three()))
	kubeconfig := f.kubeconfig(map[string]string{"any": f.URL})
	var stdout, stderr bytes.Buffer
	if code := run([]string{"status", "-o", view.JSON, "--kubeconfig=" + kubeconfig}, &stdout, &stderr); code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	var back status.Installation
	if err := json.Unmarshal(stdout.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	content, err := json.Marshal(f.of)
	if err != nil {
		t.Fatal(err)
	}
	var want status.Installation
	if err := json.Unmarshal(content, &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, want) {
		t.Errorf("%s", stdout.String())
	}
}

func TestStepDownFindsTheLeaderAndSaysWhoLeadsNext(t *testing.T) {
	f := startFake(t, now(statustest.Lone()))
	reachable(f)
	kubeconfig := f.kubeconfig(map[string]string{"system:admin": f.URL + "/clusters/system:admin"})
	var stdout, stderr bytes.Buffer
	if code := run([]string{"step-down", "--reason=test", "--to=" + statustest.B, "--kubeconfig=" + kubeconfig}, &stdout, &stderr); code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	if want := statustest.A + " led shard root in epoch 5; " + statustest.B + " leads it in epoch 6, "; !strings.HasPrefix(stdout.String(), want) {
		t.Errorf("said %q, want %q", stdout.String(), want)
	}
	if len(f.stepDowns) != 1 || !strings.Contains(f.stepDowns[0], `"reason":"test"`) || !strings.Contains(f.stepDowns[0], `"to":"`+statustest.B+`"`) {
		t.Errorf("asked %q", f.stepDowns)
	}
}

func TestShellsCompleteNames(t *testing.T) {
	f := startFake(t, now(statustest.Three()))
	t.Setenv(clientcmd.RecommendedConfigPathEnvVar, f.kubeconfig(map[string]string{"system:admin": f.URL}))
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"status", "--shard", ""}, []string{"root", "eu1", "us1"}},
		{[]string{"status", "--shard=eu1", "--replica", ""}, []string{"eu-a-6443", "eu-b-6443"}},
		{[]string{"controllers", ""}, []string{"workspace", "logicalcluster", "namespace", "serviceaccount"}},
		{[]string{"step-down", "--shard=us1", "--to", ""}, []string{"us-b-6443"}},
		{[]string{"status", "-o", ""}, view.Formats},
		{[]string{"shard", "cordon", ""}, []string{"root", "eu1", "us1"}},
		{[]string{"front", "remove", ""}, []string{"front-0", "front-1"}},
		{[]string{"forget-replica", ""}, []string{"host-a-6443_1a2b3c4d", "host-b-6443_1a2b3c4d", "eu-a-6443_1a2b3c4d", "eu-b-6443_1a2b3c4d", "us-a-6443_1a2b3c4d", "us-b-6443_1a2b3c4d"}},
		{[]string{"version", ""}, []string{}},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(append([]string{"__complete"}, c.args...), &stdout, &stderr); code != exitOK {
			t.Errorf("%q: exit code %d", c.args, code)
		}
		lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
		if got := lines[:len(lines)-1]; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %q, want %q", c.args, got, c.want)
		}
	}
}

// On a pipe --watch prints what changes, and nothing while nothing does.
func TestWatchPrintsChangesOnly(t *testing.T) {
	f := startFake(t, now(statustest.Lone()))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f.onAsked = func(n int) {
		switch n {
		case 3:
			f.of.Shards[0].Replicas[1].Election.Contact.State = "refused"
		case 5:
			cancel()
		}
	}
	cmd := newCommand()
	var stdout, stderr bytes.Buffer
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs([]string{"status", "--watch", "--interval=10ms", "--kubeconfig=" + f.kubeconfig(map[string]string{"system:admin": f.URL})})
	if err := cmd.ExecuteContext(ctx); err == nil || err.Error() != problemsFound(status.Warning).Error() {
		t.Errorf("ended with %v: %s", err, stderr.String())
	}
	if lines := strings.Count(stdout.String(), "\n"); lines != 5 || !strings.Contains(stdout.String(), "problem contact root/"+statustest.B) {
		t.Errorf("%d lines:\n%s", lines, stdout.String())
	}
}

func TestKubectlFindsItsPlugin(t *testing.T) {
	for _, c := range []struct{ args, want []string }{
		{[]string{"/usr/bin/regent", "status"}, []string{"status"}},
		{[]string{"/usr/bin/kubectl-regent", "status", "-w"}, []string{"status", "-w"}},
		{[]string{"kubectl_complete-regent", "status", ""}, []string{"__complete", "status", ""}},
		{[]string{"kubectl-ws", "tree"}, []string{"ws", "tree"}},
		{[]string{"kubectl-ws"}, []string{"ws"}},
		{[]string{"kubectl_complete-ws", "use", ""}, []string{"__complete", "ws", "use", ""}},
	} {
		if got := asPlugin(c.args); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %q, want %q", c.args, got, c.want)
		}
	}
	before := os.Args[0]
	defer func() { os.Args[0] = before }()
	os.Args[0] = "/usr/local/bin/kubectl-regent"
	if got := displayName(); got != "kubectl regent" {
		t.Errorf("called %q", got)
	}
}
