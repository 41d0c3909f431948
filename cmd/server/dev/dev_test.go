package dev

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apiserver/pkg/storage/storagebackend"
)

func TestMain(m *testing.M) {
	if os.Getenv(parentPipe) != "" {
		os.Exit(asChild())
	}
	if program := os.Getenv(parentOf); program != "" {
		os.Exit(asParent(program))
	}
	if backend := os.Getenv(balancerTo); backend != "" {
		os.Exit(asBalancer(backend))
	}
	goleak.VerifyTestMain(m,
		// Started by packages' init functions, for the life of the process.
		goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		goleak.IgnoreAnyFunction("go.opencensus.io/stats/view.(*worker).start"),
	)
}

// asChild is what a child does in these tests: it logs two lines, and lives as long as its parent's pipe.
func asChild() int {
	ended := make(chan struct{})
	if err := UntilParentEnds(func() { close(ended) }); err != nil {
		return exitUsage
	}
	_, _ = os.Stdout.WriteString(`I1121 "Serving" shard="root"` + "\nwithout an end of line")
	<-ended
	return 0
}

func TestFaultyOptionsAreRefusedByTheNameOfTheirFlag(t *testing.T) {
	for flag, change := range map[string]func(*Options){
		"--root-directory": func(o *Options) { o.RootDirectory = "" },
		"--replicas":       func(o *Options) { o.Replicas = 0 },
		"--shards":         func(o *Options) { o.Shards = 17 },
		"--secure-port":    func(o *Options) { o.SecurePort = 65534 },
		"--program":        func(o *Options) { o.Program = "./no-such-program" },
	} {
		o := NewOptions()
		change(o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), flag) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", flag, err)
		}
	}
	if err := NewOptions().Validate(); err != nil {
		t.Error(err)
	}
}

// Only replicas run the user's program: fronts have no controllers.
func TestReplicasRunTheProgramThatIsNamed(t *testing.T) {
	o := NewOptions()
	o.Shards, o.Program = 2, "./embedder"
	s := &system{cfg: Config{Options: o}}
	s.shards = []*shard{s.newShard(0, storagebackend.TransportConfig{})}
	s.addFronts()
	for _, c := range s.children() {
		file, err := c.file()
		if err != nil {
			t.Fatal(err)
		}
		if isReplica := c.args[0] == "start"; isReplica != (file == o.Program) {
			t.Errorf("%s runs %s", c.name, file)
		}
	}
}

func TestPortsDoNotOverlap(t *testing.T) {
	for _, o := range []*Options{{SecurePort: 6443, Replicas: 3, Shards: 1}, {SecurePort: 6443, Replicas: 2, Shards: 3}} {
		ports := []int{o.SecurePort}
		for n := range o.fronts() {
			ports = append(ports, o.front(n))
		}
		for s := range o.Shards {
			for r := range o.Replicas {
				ports = append(ports, o.replica(s, r))
			}
		}
		for i, port := range append(ports, o.afterLast()) {
			if port != o.SecurePort+i {
				t.Fatalf("ports %v, want them in a row", ports)
			}
		}
	}
}

func TestATakenPortIsNamedBeforeAnythingStarts(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	o := NewOptions()
	o.RootDirectory, o.SecurePort = t.TempDir(), taken.Addr().(*net.TCPAddr).Port
	err = Run(t.Context(), Config{Options: o, Stdout: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "--secure-port") {
		t.Errorf("Run returned %v", err)
	}
	if left, _ := os.ReadDir(o.RootDirectory); len(left) != 0 {
		t.Errorf("it left %v", left)
	}
}

// startBackend starts a TLS server that says who it is.
func startBackend(t *testing.T, name string, ready *atomic.Bool) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" && !ready.Load() {
			http.Error(w, "not ready", http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, name)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that leave
	s.StartTLS()
	return s
}

func TestTheBalancerLeadsOnlyToReplicasThatAreReady(t *testing.T) {
	var readyA, readyB atomic.Bool
	a, b := startBackend(t, "a", &readyA), startBackend(t, "b", &readyB)
	defer a.Close()
	defer b.Close()
	f, err := newBalancer("127.0.0.1:0", 100, t.Logf, a.Listener.Addr().String(), b.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	client := a.Client() // trusts the certificate that all test servers have
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := f.run(ctx, client); err != nil {
			t.Error(err)
		}
	}()
	who := func() string {
		client.CloseIdleConnections() // a new connection is led anew
		resp, err := client.Get("https://" + f.listener.Addr().String() + "/")
		if err != nil {
			return ""
		}
		defer func() { _ = resp.Body.Close() }()
		name, _ := io.ReadAll(resp.Body)
		return string(name)
	}
	until := func(what string, so func() bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !so(); {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	if got := who(); got != "" {
		t.Errorf("%q answers although nobody is ready", got)
	}
	// A replica that takes a second to say so, on a busy machine, is not ready for a moment: then nobody answers.
	only := func(name string) {
		t.Helper()
		for n := range 10 {
			until(fmt.Sprintf("%s answers %d times only", name, n), func() bool {
				got := who()
				if got != name && got != "" {
					t.Fatalf("%q answers, and only %s may", got, name)
				}
				return got == name
			})
		}
	}
	readyB.Store(true)
	only("b")
	readyA.Store(true)
	until("a never answers", func() bool { return who() == "a" })
	b.CloseClientConnections()
	b.Close()
	only("a")
	cancel()
	<-ended
	client.CloseIdleConnections()
}

// pidOf waits until a child's pid is known: the child may be heard before.
func pidOf(t *testing.T, c *child) int {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); <-time.After(time.Millisecond) {
		if pid := c.running(); pid != 0 {
			return pid
		}
	}
	t.Fatal("the child has no pid")
	return 0
}

// terminal is what dev writes to in these tests.
type terminal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *terminal) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *terminal) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// shows waits until a text is there.
func (b *terminal) shows(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(b.String(), text); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not show %q:\n%s", text, b)
		}
	}
}

func newTestChild(t *testing.T, to io.Writer) *child {
	return &child{
		name: "replica-0", args: []string{"-test.run=^$"}, out: &output{to: to, all: true}, log: filepath.Join(t.TempDir(), "logs", "replica-0.log"),
		again: make(chan struct{}, 1), ready: func(context.Context) error { return nil },
	}
}

func TestAChildIsShownAndEndsWithItsParentsPipe(t *testing.T) {
	var buffer terminal
	c := newTestChild(t, &buffer)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type result struct {
		exit string
		err  error
	}
	ended := make(chan result, 1)
	go func() {
		state, err := c.run(ctx)
		ended <- result{state.String(), err}
	}()
	buffer.shows(t, "Serving")
	pidOf(t, c)
	cancel() // it does not catch SIGTERM
	if r := <-ended; r.err != nil || !strings.Contains(r.exit, "terminated") {
		t.Errorf("the child ended with %q, %v", r.exit, r.err)
	}
	want := "replica-0 | I1121 \"Serving\" shard=\"root\"\nreplica-0 | without an end of line\n"
	if buffer.String() != want {
		t.Errorf("got %q", buffer.String())
	}
	if c.running() != 0 {
		t.Error("the child still has a pid")
	}
	kept, err := os.ReadFile(c.log)
	if whole := strings.ReplaceAll(want, "replica-0 | ", ""); err != nil || string(kept) != whole {
		t.Errorf("the log file has %q, %v, want %q", kept, err, whole)
	}
}

func TestAChildThatIsStartedAgainTellsItsPid(t *testing.T) {
	var pids []int
	var all strings.Builder
	c := newTestChild(t, nil)
	for range 2 {
		var buffer terminal
		c.out.to = &buffer
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := c.run(ctx)
			ended <- err
		}()
		buffer.shows(t, "Serving")
		pids = append(pids, pidOf(t, c))
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		all.WriteString(buffer.String())
	}
	if want := fmt.Sprintf("dev | replica-0 is started again, pid %d\n", pids[1]); strings.Count(all.String(), "started again") != 1 || !strings.Contains(all.String(), want) {
		t.Errorf("of the process that was started again it does not say %q once:\n%s", want, all.String())
	}
	if strings.Count(all.String(), "dev | replica-0 is ready again, after ") != 1 {
		t.Errorf("it does not say once that the process is ready again:\n%s", all.String())
	}
}

// Without a terminal nobody can press Enter, and nobody is told to. A signal does the same.
func TestWhatHasEndedIsStartedAgainByEnterOrASignal(t *testing.T) {
	enters, signals := make(chan struct{}), make(chan os.Signal)
	c := &child{again: make(chan struct{}, 1)}
	s := &system{cfg: Config{Enters: enters, Signals: signals}, deaf: &atomic.Bool{}, fronts: []*child{c}}
	var ended sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer ended.Wait()
	defer cancel()
	ended.Go(func() { s.restart(ctx) })
	if how := howToStart(s.deaf); how != "Press Enter" {
		t.Errorf("in a terminal: %s", how)
	}
	enters <- struct{}{}
	<-c.again
	close(enters)
	for !s.deaf.Load() {
		<-time.After(time.Millisecond)
	}
	signals <- syscall.SIGUSR1
	<-c.again
	if how := howToStart(s.deaf); how != fmt.Sprintf("Run `kill -USR1 %d`", os.Getpid()) {
		t.Errorf("without a terminal: %s", how)
	}
}

func TestOnlyDevSetsAParentsPipe(t *testing.T) {
	t.Setenv(parentPipe, "1")
	if err := UntilParentEnds(func() {}); err == nil || !strings.Contains(err.Error(), "regent dev") {
		t.Errorf("got %v", err)
	}
}

// Whoever starts a part of an installation must not take it for a fault that the rest does not answer.
func TestTheBannerNamesShardsThatAreNotStarted(t *testing.T) {
	directory := t.TempDir()
	banner := func() string {
		s := &system{shards: []*shard{{name: "root", leader: &child{name: "replica-0"}}}, deaf: &atomic.Bool{}}
		s.cfg.Options = &Options{RootDirectory: directory}
		return s.banner("kubectl")
	}
	if got := banner(); strings.Contains(got, "--shards") {
		t.Errorf("the banner of a lone shard:\n%s", got)
	}
	for _, name := range []string{"shard-1", "shard-2"} {
		if err := os.Mkdir(filepath.Join(directory, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if got := banner(); !strings.Contains(got, "has 3 shards, of which 1 started") || !strings.Contains(got, "ARGS=--shards=3") {
		t.Errorf("the banner does not say that two shards are not started:\n%s", got)
	}
}

func TestTheBannersCommandsCanBePasted(t *testing.T) {
	newChild := func(name string, port, pid int) *child { return &child{name: name, url: url(port), pid: pid} }
	leader := newChild("replica-1", 6445, 42)
	alone := &shard{name: "root", leader: leader, epoch: 3, children: []*child{newChild("replica-0", 6444, 41), leader}}
	root := &shard{name: "root", leader: leader, epoch: 3, children: []*child{newChild("root-replica-0", 6446, 51)}}
	other := &shard{name: "shard-1", children: []*child{newChild("shard-1-replica-0", 6447, 61), newChild("shard-1-replica-1", 6448, 62)}}
	for name, tc := range map[string]struct {
		system *system
		want   []string
	}{
		"a lone shard": {&system{shards: []*shard{alone}}, []string{
			"  replica-0    pid 41       https://127.0.0.1:6444\n",
			"  replica-1    pid 42       https://127.0.0.1:6445   leads, epoch 3\n",
			"  regent ws create demo\n", "  kill -9 42\n",
		}},
		"an installation": {&system{shards: []*shard{root, other}, fronts: []*child{newChild("front-0", 6444, 31), newChild("front-1", 6445, 32)}}, []string{
			"2 shards are one installation, at https://127.0.0.1:6443\n",
			"  front-0             pid 31       https://127.0.0.1:6444\n",
			"  shard-1-replica-1   pid 62       https://127.0.0.1:6448\n",
			"regent shard list\n", "  kubectl --context shard-1/system:admin get lease",
			"  kill -9 61 62\n", "  kill -9 51 31\n",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.system.url, tc.system.kubeconfig, tc.system.deaf = url(6443), "root/admin.kubeconfig", &atomic.Bool{}
			tc.system.cfg.Options = &Options{RootDirectory: "root"}
			got := tc.system.banner("kubectl")
			for _, want := range append(tc.want, "  export KUBECONFIG=root/admin.kubeconfig\n", "Their logs are in root/logs\n", "regent dev -v") {
				if !strings.Contains(got, want) {
					t.Errorf("the banner does not say %q:\n%s", want, got)
				}
			}
			if strings.Contains(got, "alias") {
				t.Error("an alias for what is on the PATH")
			}
		})
	}
}

func TestAWordIsQuotedForTheShell(t *testing.T) {
	for text, want := range map[string]string{
		"--etcd-servers=http://127.0.0.1:2379": "--etcd-servers=http://127.0.0.1:2379",
		"with space/x":                         "'with space/x'",
		"it's":                                 `'it'\''s'`,
	} {
		if got := quoted(text); got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
}
