package bench

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/regent-project/regent/test/e2e/harness"
)

const (
	// creators is how many workspaces are created at once, and how many are deleted at once.
	creators = 16
	// copiers is how many workspaces are copied at once, and batch how many writes of them are one transaction
	// while no replica runs.
	copiers, batch = 64, 100
)

// workspaceName has the same length for all: what is stored is partly protobuf, which says how long names are.
func workspaceName(n int) string { return fmt.Sprintf("ws-%07d", n) }

// fill copies the first workspace, as it is stored in etcd, until there are as many as wanted, and waits until the
// replicas have seen them. To create a hundred thousand takes half an hour.
func (m *machine) fill(b *testing.B, r *scaled, from, to int) {
	b.Helper()
	if to == 0 {
		return
	}
	if from == 0 {
		if create(b, m, 0, 1); b.Failed() {
			b.FailNow()
		}
		harness.EventuallyIn(b, time.Minute, "it is Ready", func() bool {
			ws, err := m.leader.Dynamic("root").Resource(harness.Workspaces).Get(b.Context(), workspaceName(0), metav1.GetOptions{})
			return err == nil && isReady(ws)
		})
		from = 1
	}
	stored := m.stored(b)
	progress("a workspace is %d objects", len(stored.puts))
	if *scaleStill {
		m.whileStill(b, func() { m.copyMany(b, stored, from, to) })
	} else {
		m.copy(b, stored, from, to)
	}
	for _, replica := range []*harness.Replica{m.leader, m.standby} {
		harness.EventuallyIn(b, time.Hour, "it has seen the workspaces", func() bool {
			client := replica.Dynamic("root").Resource(harness.Workspaces)
			_, err := client.Get(b.Context(), workspaceName(to-1), metav1.GetOptions{ResourceVersion: "0"})
			return err == nil
		})
	}
	r.settled(b, m.leader)
	progress("%d workspaces", to)
}

// copy writes what is stored, for the workspaces from one number to another.
func (m *machine) copy(b *testing.B, stored workspaceStored, from, to int) {
	b.Helper()
	etcd := m.etcd.Client(b)
	var copying sync.WaitGroup
	for c := range copiers {
		copying.Go(func() {
			for n := from + c; n < to && !b.Failed(); n += copiers {
				for _, puts := range stored.copied(n) {
					if _, err := etcd.Txn(b.Context()).Then(puts...).Commit(); err != nil {
						b.Errorf("workspace %d: %v", n, err)
						return
					}
				}
			}
		})
	}
	if copying.Wait(); b.Failed() {
		b.FailNow()
	}
}

// whileStill does something while no replica runs.
func (m *machine) whileStill(b *testing.B, do func()) {
	b.Helper()
	for _, replica := range []*harness.Replica{m.standby, m.leader} {
		replica.Signal(syscall.SIGTERM)
		replica.Wait()
	}
	do()
	for _, replica := range []*harness.Replica{m.leader, m.standby} {
		replica.Again()
		harness.EventuallyIn(b, 10*time.Minute, "the replica is ready", func() bool { return replica.Status("/readyz") == http.StatusOK })
	}
	m.awaitStandby(b)
}

// copyMany is copy while no replica runs, whose watches would miss what is written together.
func (m *machine) copyMany(b *testing.B, stored workspaceStored, from, to int) {
	b.Helper()
	etcd := m.etcd.Client(b)
	perBatch := max(1, batch/len(stored.puts))
	var copying sync.WaitGroup
	for c := range copiers {
		copying.Go(func() {
			for n := from + c*perBatch; n < to && !b.Failed(); n += copiers * perBatch {
				var puts []clientv3.Op
				for of := n; of < min(n+perBatch, to); of++ {
					puts = append(puts, slices.Concat(stored.copied(of)...)...)
				}
				if _, err := etcd.Txn(b.Context()).Then(puts...).Commit(); err != nil {
					b.Errorf("workspaces from %d on: %v", n, err)
				}
			}
		})
	}
	if copying.Wait(); b.Failed() {
		b.FailNow()
	}
}

// workspaceStored is what etcd has of a workspace.
type workspaceStored struct {
	cluster string
	puts    [][2]string
}

// stored returns what etcd has of the first workspace.
func (m *machine) stored(b *testing.B) workspaceStored {
	b.Helper()
	ws, err := m.leader.Dynamic("root").Resource(harness.Workspaces).Get(b.Context(), workspaceName(0), metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	s := workspaceStored{cluster: ws.Object["spec"].(map[string]any)["cluster"].(string)}
	all, err := m.etcd.Client(b).Get(b.Context(), "/registry/", clientv3.WithPrefix())
	if err != nil {
		b.Fatal(err)
	}
	for _, kv := range all.Kvs {
		key := string(kv.Key)
		if own := strings.Contains(key, s.cluster) || strings.HasSuffix(key, "/workspaces/root/"+workspaceName(0)); own && !strings.Contains(key, "/events/") {
			s.puts = append(s.puts, [2]string{key, string(kv.Value)})
		}
	}
	return s
}

var uid = regexp.MustCompile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

// copied returns the transactions that make workspace n: the same, but for its name, its cluster's name and the uids. A
// workspace and its cluster are made by the first one, since the leader deletes clusters that have no workspace.
//
// None of them has two objects of one resource. A watch that ends amid the objects of a revision goes on behind them,
// and who watches never hears of the rest. Replicas write objects one by one. Several in one transaction have cost
// replicas the bindings of whole clusters, whose users were refused until a restart.
func (s workspaceStored) copied(n int) (transactions [][]clientv3.Op) {
	names := strings.NewReplacer(s.cluster, fmt.Sprintf("c%0*d", len(s.cluster)-1, n), workspaceName(0), workspaceName(n))
	of := map[string]int{} // how many of a resource there are
	for _, put := range s.puts {
		value := uid.ReplaceAllStringFunc(put[1], func(uid string) string { return fmt.Sprintf("%s%08d", uid[:len(uid)-8], n) })
		resource := strings.Join(strings.SplitN(put[0], "/", 5)[:4], "/") // /registry/GROUP/RESOURCE/
		if of[resource] == len(transactions) {
			transactions = append(transactions, nil)
		}
		at := of[resource]
		transactions[at] = append(transactions[at], clientv3.OpPut(names.Replace(put[0]), names.Replace(value)))
		of[resource]++
	}
	return transactions
}

// throughput creates so many workspaces beside those that are there, waits until they are Ready, and deletes them
// again.
func (m *machine) throughput(b *testing.B, r *scaled, from, n int) {
	b.Helper()
	if n == 0 {
		return
	}
	began := m.cpu(b)
	r.accepted, r.ready = m.each(b, r, "cpu-leader", from, from+n, create, ready)
	there := m.cpu(b)
	_, r.deleted = m.each(b, r, "cpu-leader-deleting", from, from+n, func(b *testing.B, m *machine, from, to int) {
		at(b, m, from, to, func(ctx context.Context, client dynamic.ResourceInterface, name string) error {
			return client.Delete(ctx, name, metav1.DeleteOptions{})
		})
	}, func(event watch.EventType, _ *unstructured.Unstructured) bool { return event == watch.Deleted })
	progress("%d workspaces, and %d more: %.0f accepted, %.0f Ready, %.0f deleted in a second", r.size, n, r.accepted, r.ready, r.deleted)
	r.creating, r.deleting = there.since(began, n), m.cpu(b).since(there, n)
	progress("CPU of each: creating %v, deleting %v", r.creating, r.deleting)
}

// cpu is what processes have used, or use for each workspace: the leader, the standby, etcd, and the users.
type cpu [4]time.Duration

func (m *machine) cpu(b *testing.B) cpu {
	b.Helper()
	var users syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &users); err != nil {
		b.Fatal(err)
	}
	of := cpu{m.leader.CPU(), m.standby.CPU(), 0, time.Duration(users.Utime.Nano() + users.Stime.Nano())}
	for _, member := range m.etcd.Members {
		of[2] += member.CPU()
	}
	return of
}

// since returns what each of n workspaces has cost since then.
func (c cpu) since(then cpu, n int) (each cpu) {
	for i := range c {
		each[i] = (c[i] - then[i]) / time.Duration(n)
	}
	return each
}

// String is in milliseconds.
func (c cpu) String() string {
	var of []string
	for _, used := range c {
		of = append(of, fmt.Sprintf("%.1f", used.Seconds()*1000))
	}
	return strings.Join(of, " / ") + " ms"
}

// each does something to workspaces, and returns how many of them were accepted in a second, and how many were seen as
// wanted.
func (m *machine) each(b *testing.B, r *scaled, profile string, from, to int, do func(*testing.B, *machine, int, int),
	so func(watch.EventType, *unstructured.Unstructured) bool) (accepted, complete float64) {
	b.Helper()
	client := m.leader.Dynamic("root").Resource(harness.Workspaces)
	list, err := client.List(b.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		b.Fatal(err)
	}
	// The server ends a watch that is slow, which on two busy cores this one is.
	w, err := watchtools.NewRetryWatcherWithContext(b.Context(), list.GetResourceVersion(), &cache.ListWatch{WatchFuncWithContext: client.Watch})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Stop()
	began := time.Now()
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { r.profile(m.leader, "profile?seconds=10", profile) })
	beside.Go(func() {
		if do(b, m, from, to); b.Failed() {
			w.Stop()
		}
		accepted = float64(to-from) / time.Since(began).Seconds()
	})
	seen := map[string]bool{}
	for event := range w.ResultChan() {
		ws, is := event.Object.(*unstructured.Unstructured)
		if !is {
			b.Fatalf("the watch of workspaces has ended: %v", event.Object)
		}
		if so(event.Type, ws) {
			seen[ws.GetName()] = true
		}
		if len(seen) == to-from {
			break
		}
	}
	complete = float64(to-from) / time.Since(began).Seconds()
	beside.Wait()
	if b.Failed() {
		b.FailNow()
	}
	r.settled(b, m.leader)
	return accepted, complete
}

func ready(_ watch.EventType, ws *unstructured.Unstructured) bool { return isReady(ws) }

// create creates workspaces.
func create(b *testing.B, m *machine, from, to int) {
	b.Helper()
	at(b, m, from, to, func(ctx context.Context, client dynamic.ResourceInterface, name string) error {
		_, err := client.Create(ctx, harness.NewWorkspace(name), metav1.CreateOptions{})
		return err
	})
}

// at does something for each of many workspaces, through the leader, for several of them at once.
func at(b *testing.B, m *machine, from, to int, do func(context.Context, dynamic.ResourceInterface, string) error) {
	b.Helper()
	var all sync.WaitGroup
	for c := range creators {
		client := m.leader.Dynamic("root").Resource(harness.Workspaces)
		all.Go(func() {
			for n := from + c; n < to; n += creators {
				if err := do(b.Context(), client, workspaceName(n)); err != nil {
					b.Errorf("workspace %s: %v", workspaceName(n), err)
					return
				}
			}
		})
	}
	all.Wait()
}
