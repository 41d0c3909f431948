package bench

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/test/e2e/harness"
)

var (
	kcpLoad        = flag.String("kcp-load", "", "kcp's load test, compiled")
	loadWorkspaces = flag.Int("load-workspaces", 10000, "how many workspaces kcp's load test creates")
	loadQPS        = flag.Float64("load-qps", 60, "how many it creates in a second, and exports, and bindings")
	loadCRUD       = flag.Float64("load-crud", 150, "in how many of them it creates, reads, changes and deletes an object, in a second")
	loadTrees      = flag.String("load-trees", "symmetric,flat", "how the workspaces are arranged, one installation after the other")
	loadTests      = flag.String("load-tests", "TestWorkspaceCreation,TestWorkspaceSimpleCRUD,TestAPISharing", "its tests, in this order, against the first installation; only the first test against others")
	loadProfiles   = flag.String("load-profiles", "", "a directory for heap profiles of the root shard's leader, one for each row about what is used")
	loadRest       = flag.Duration("load-rest", 0, "for how long to wait once all workspaces are deleted, to look again at what is left")
	loadShards     = flag.Int("load-shards", 3, "how many shards the installation has")
)

// BenchmarkKcpLoad is kcp's own load test, as it is, against an installation of several shards of two replicas, with a
// front, and what it leaves once all workspaces are deleted. It prints the test's reports. make load runs it.
//
// The test creates workspaces at a rate, whatever becomes of them, and asks every 500 ms whether each is Ready: so much
// is in its figures.
func BenchmarkKcpLoad(b *testing.B) {
	if *kcpLoad == "" {
		b.Fatal("no load test of kcp: make load KCP=<checkout of kcp> compiles it, and runs this with -kcp-load")
	}
	began := time.Now()
	if _, err := build(); err != nil {
		b.Fatal(err)
	}
	tests := strings.Split(*loadTests, ",")
	var rows string
	for tree := range strings.SplitSeq(*loadTrees, ",") {
		b.Run(tree, func(b *testing.B) {
			l := startLoaded(b, tree)
			rows += l.footprint(b, "before")
			for _, test := range tests {
				l.run(b, test)
				rows += l.footprint(b, test)
			}
			took := l.deleteAll(b)
			rows += l.footprint(b, fmt.Sprintf("all deleted, in %s", show(took)))
			if *loadRest > 0 {
				time.Sleep(*loadRest)
				rows += l.footprint(b, fmt.Sprintf("%s later", *loadRest))
			}
			b.ReportMetric(0, "ns/op")
		})
		tests = tests[:1]
	}
	fmt.Printf("\n| tree | after | workspaces | live heap of leaders / of standbys | resident, leaders / standbys | etcds |\n|---|---|---|---|---|---|\n%s\n%s.\n%s\n", rows, versions(b), closing(began))
}

// loaded is an installation under kcp's load test.
type loaded struct {
	*harness.Installation
	front        *harness.Front
	tree, config string
	profiled     int
}

func startLoaded(b *testing.B, tree string) *loaded {
	b.Helper()
	var others []string
	for n := 2; n <= *loadShards; n++ {
		others = append(others, fmt.Sprintf("shard-%d", n))
	}
	l := &loaded{Installation: harness.InstallLong(b, others...), tree: tree}
	l.front = l.StartFront()
	params, err := json.Marshal(map[string]any{"params": map[string]any{
		"workspaceCount": *loadWorkspaces, "workspaceTreeType": tree, "createWorkspaceQPS": *loadQPS, "crudConfigMapQPS": *loadCRUD,
		"providerWorkspacesCount": *loadWorkspaces / 10, "consumerWorkspacesCount": *loadWorkspaces - *loadWorkspaces/10,
		"createAPIExportQPS": *loadQPS, "createAPIBindingQPS": *loadQPS, "crudSharedAPIQPS": *loadCRUD,
	}})
	if err != nil {
		b.Fatal(err)
	}
	l.config = save(b, "params.json", params)
	return l
}

// run runs one test. It goes on if that fails: its report says so.
func (l *loaded) run(b *testing.B, test string) {
	b.Helper()
	progress("%s, %s", l.tree, test)
	said, err := os.Create(filepath.Join(b.TempDir(), test+".txt"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = said.Close() }()
	cmd := exec.CommandContext(b.Context(), *kcpLoad, "-test.run", "^"+test+"$", "-test.timeout", "3h", "-test.v", "--config="+l.config)
	cmd.Env = append(os.Environ(), "FRONTPROXY_KUBECONFIG="+l.Kubeconfig())
	cmd.Stdout, cmd.Stderr = said, said
	failed := cmd.Run()
	if _, err := said.Seek(0, io.SeekStart); err != nil {
		b.Fatal(err)
	}
	text, err := io.ReadAll(said)
	if err != nil {
		b.Fatal(err)
	}
	report, errors := reportOf(string(text))
	fmt.Printf("\n%s\n", report)
	if failed != nil {
		b.Errorf("%s, %s: %v; %d errors", l.tree, test, failed, errors)
	}
}

// reportOf returns the test's report, with at most ten errors of each section.
func reportOf(said string) (report string, errors int) {
	if at := strings.Index(said, "\n=== "); at >= 0 && strings.Contains(said[at:], "kcp Version") {
		said = said[strings.LastIndex(said[:strings.Index(said, "kcp Version")], "\n=== "):]
	}
	var out []string
	of := 0
	for line := range strings.SplitSeq(strings.TrimSpace(said), "\n") {
		switch is := strings.HasPrefix(line, "    - "); {
		case is:
			if of, errors = of+1, errors+1; of > 10 {
				continue
			}
		default:
			of = 0
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n"), errors
}

// deleteAll deletes what the test has created, from the top, and returns how long it took until all was gone.
func (l *loaded) deleteAll(b *testing.B) time.Duration {
	b.Helper()
	began := time.Now()
	workspaces := l.front.Dynamic("root").Resource(harness.Workspaces)
	list, err := workspaces.List(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	names := make(chan string)
	var deleting sync.WaitGroup
	for range creators {
		deleting.Go(func() {
			for name := range names {
				if err := workspaces.Delete(b.Context(), name, metav1.DeleteOptions{}); err != nil {
					b.Errorf("delete %s: %v", name, err)
				}
			}
		})
	}
	for _, ws := range list.Items {
		names <- ws.GetName()
	}
	close(names)
	deleting.Wait()
	harness.EventuallyIn(b, time.Hour, "all workspaces are gone", func() bool { return l.clusters(b.Context()) == 0 })
	return time.Since(began)
}

// clusters returns how many logical clusters of workspaces there are. -1: somebody does not answer.
func (l *loaded) clusters(ctx context.Context) (n int) {
	for _, m := range l.All() {
		list, err := m.Replicas[0].Dynamic("*").Resource(harness.LogicalClusters).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return -1
		}
		for _, lc := range list.Items {
			if _, owned := lc.Object["spec"].(map[string]any)["owner"]; owned {
				n++
			}
		}
	}
	return n
}

// footprint is a row about what all processes use.
func (l *loaded) footprint(b *testing.B, after string) string {
	b.Helper()
	time.Sleep(10 * time.Second) // what is released to the system is so after a while
	n := l.clusters(b.Context())
	var heap, resident [2]int
	etcds := 0
	for _, m := range l.All() {
		leader := m.Leader(b)
		for _, r := range m.Replicas {
			of := 1
			if r == leader {
				of = 0
			}
			heap[of] += r.Heap() >> 20
			resident[of] += r.ResidentMiB()
		}
		for _, member := range m.Etcd.Members {
			etcds += member.ResidentMiB()
		}
	}
	row := fmt.Sprintf("| %s | %s | %d | %d / %d MiB | %d / %d MiB | %d MiB |\n", l.tree, after, n, heap[0], heap[1], resident[0], resident[1], etcds)
	progress("%s", strings.TrimSpace(row))
	if *loadProfiles != "" {
		l.profiled++
		if err := l.Root.Leader(b).SaveProfile("heap?gc=1", filepath.Join(*loadProfiles, fmt.Sprintf("heap-%s-%d.pprof", l.tree, l.profiled))); err != nil {
			progress("%v", err)
		}
	}
	return row
}
