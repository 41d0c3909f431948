package upgrade

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/regent-project/regent/test/e2e/harness"
	"github.com/regent-project/regent/test/e2e/history"
)

// leaseOf is the Lease of a shard's election.
const leaseOf = "system:admin/kube-system/" + harness.LeaseName

// rolled is an installation of three shards that is rolled while users are at work.
type rolled struct {
	*testing.T
	*harness.Installation
	fronts    []*harness.Front
	recorders map[string]*history.Recorder // by shard
	tenants   []tenant
	load      *load
	watchers  *watchers
	// after is called after each step, with what it was.
	after func(step string)
}

// install starts an installation of the release before, with users.
func install(t *testing.T) *rolled {
	t.Helper()
	return admit(t, harness.InstallFrom(t, older(), "eu1", "us1"), older())
}

// admit lets users into an installation. Its processes are started from binary when they are started again.
func admit(t *testing.T, i *harness.Installation, binary string) *rolled {
	t.Helper()
	r := &rolled{T: t, Installation: i, recorders: map[string]*history.Recorder{}, after: func(string) {}}
	for range 2 {
		// One certificate stands for all users here.
		r.fronts = append(r.fronts, r.StartFront("--shutdown-delay-duration="+noticed.String(), "--max-requests-per-client=0"))
	}
	for _, m := range r.All() {
		for _, one := range m.Replicas {
			one.Binary = binary
		}
		r.recorders[m.Name] = history.Record(t, m.Etcd.Client(t), "/registry")
	}
	url := balance(t, r.fronts)
	r.populate()
	config := r.fronts[0].Config("root")
	r.load = newLoad(t, config, url, r.tenants)
	r.watchers = startWatchers(t, config, url, r.tenants, *watches)
	r.load.start(t, *rate)
	return r
}

// populate makes the tenants' workspaces.
func (r *rolled) populate() {
	r.Helper()
	r.Root.Replicas[0].Config("root") // lets the ordinary user in
	client := r.fronts[0].Dynamic("root").Resource(harness.Workspaces)
	r.tenants = make([]tenant, *workspaces)
	var making sync.WaitGroup
	for n := range r.tenants {
		making.Go(func() {
			name := fmt.Sprintf("tenant-%d", n)
			if _, err := client.Create(r.Context(), harness.NewWorkspace(name), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				r.Error(err)
			}
		})
	}
	making.Wait()
	for n := range r.tenants {
		name := fmt.Sprintf("tenant-%d", n)
		harness.Eventually(r, name+" is Ready", func() bool {
			ws, err := client.Get(r.Context(), name, metav1.GetOptions{})
			if err != nil {
				return false
			}
			phase, _, _ := unstructured.NestedString(ws.Object, "status", "phase")
			cluster, _, _ := unstructured.NestedString(ws.Object, "spec", "cluster")
			shard := ws.GetLabels()["regent.dev/shard"]
			if shard == "" {
				shard = "root"
			}
			r.tenants[n] = tenant{path: "root:" + name, cluster: cluster, shard: shard}
			return phase == "Ready"
		})
	}
}

// stays has users work for a while, and nothing else happen.
func (r *rolled) stays(name string) {
	r.load.begin(name)
	select {
	case <-time.After(*calm):
	case <-r.Context().Done():
	}
}

// staysAsBefore has users work before anything happens, and sees that this machine can do what they ask.
func (r *rolled) staysAsBefore() {
	r.Helper()
	const phase, most = "before", time.Second
	r.stays(phase)
	if m := r.load.measure()[phase]; m.failed > 0 || m.p99 > most {
		r.Fatalf("before anything was rolled %d of %d requests failed, and the p99 was %.1f ms: this machine does not sustain %d requests a second and %d watches; make upgrade RATE=100 WATCHES=100 is for two cores",
			m.failed, m.requests, ms(m.p99), *rate, *watches)
	}
}

// roll replaces all processes by those of another version, in the order and by the steps of docs/UPGRADE.md.
func (r *rolled) roll(binary string) {
	r.Helper()
	r.rollFronts(binary)
	for _, m := range append(r.Others[:len(r.Others):len(r.Others)], r.Root) {
		r.rollShard(m, binary)
	}
}

func (r *rolled) rollFronts(binary string) {
	r.Helper()
	for _, f := range r.fronts {
		f.Signal(syscall.SIGTERM)
		if code := f.Wait(); code != 0 {
			r.Errorf("front %s ended with %d", f.Name(), code)
		}
		f.Binary = binary
		f.Again()
		f.WaitReady()
		r.stepped("front " + f.Name())
	}
}

// rollShard replaces the standbys, and the leader last.
func (r *rolled) rollShard(m *harness.ShardMember, binary string) {
	r.Helper()
	leader := m.Leader(r)
	for _, one := range m.Replicas {
		if one != leader && one.Binary != binary {
			r.replace(one, binary)
		}
	}
	if leader.Binary != binary {
		r.replace(leader, binary)
		m.Leader(r)
	}
}

// replace stops a replica, and starts it from another program.
func (r *rolled) replace(one *harness.Replica, binary string) {
	r.Helper()
	r.stop(one)
	one.Binary = binary
	one.Again()
	one.WaitReady()
	r.stepped("replica " + one.Name())
}

func (r *rolled) stop(one *harness.Replica) {
	r.Helper()
	one.Signal(syscall.SIGTERM)
	if code := one.Wait(); code != 0 {
		r.Errorf("%s ended with %d", one.Name(), code)
	}
}

// stepped looks at the installation as an operator does after a step, with the newer program: nothing warns.
func (r *rolled) stepped(step string) {
	r.Helper()
	harness.Eventually(r, "after "+step+" the exit code of regent status is 0", func() bool {
		_, err := r.TryRegentOf(newer(), "status")
		return err == nil
	})
	r.Logf("%s: done", step)
	r.after(step)
}

// judged is what an installation showed.
type judged struct {
	phases map[string]measured
	lists  int
	// terms are how many led on each shard, longest the longest time between two.
	terms   map[string]int
	longest time.Duration
}

// finish has users go, and judges by etcd's history: no acknowledged write is lost, no watch missed an event, saw one
// twice or in another order, and no term came twice.
func (r *rolled) finish() judged {
	r.Helper()
	r.load.finish()
	out := judged{phases: r.load.tell(r.T), terms: map[string]int{}}
	happened := map[string]map[int64]history.Event{}
	changes := map[string][]int64{} // revisions, by the prefix of a tenant's ConfigMaps
	for shard, recorder := range r.recorders {
		events := recorder.Finish(r)
		happened[shard] = map[int64]history.Event{}
		for _, e := range events {
			happened[shard][e.Revision] = e
			if strings.HasPrefix(e.Key, "/registry/core/configmaps/") {
				prefix := e.Key[:strings.LastIndexByte(e.Key, '/')+1]
				changes[shard+prefix] = append(changes[shard+prefix], e.Revision)
			}
		}
		spans := history.Terms(events, leaseOf)
		if twice := history.Twice(spans); len(twice) > 0 {
			r.Errorf("shard %s: terms that came twice: %q", shard, twice)
		}
		out.terms[shard] = len(spans)
		for n := 1; n < len(spans); n++ {
			gap := happened[shard][spans[n].From].At.Sub(happened[shard][spans[n-1].To].At)
			out.longest = max(out.longest, gap)
			r.Logf("shard %s: term %s follows %s after %.1f ms on the Lease", shard, spans[n].Term, spans[n-1].Term, ms(gap))
		}
	}
	lost := 0
	for _, w := range r.load.writes {
		if e := happened[w.shard][w.revision]; e.Key != w.key || e.Value != w.value {
			if lost++; lost <= 10 {
				r.Errorf("a write of %s to %s was acknowledged at revision %d, and etcd has %s of %s there", w.value, w.key, w.revision, e.Value, e.Key)
			}
		}
	}
	for _, w := range r.watchers.all {
		all := changes[w.tenant.shard+w.tenant.key("")]
		if len(all) == 0 {
			r.Fatalf("nothing happened to %s on %s: this shows nothing", w.tenant.key(""), w.tenant.shard)
		}
		harness.Eventually(r, "a watch of "+w.tenant.path+" is at its end", func() bool { return w.at() >= all[len(all)-1] })
	}
	r.watchers.finish()
	out.lists = r.watchers.tell(r.T)
	wrong := 0
	for _, w := range r.watchers.all {
		if found := faults(w.spans, changes[w.tenant.shard+w.tenant.key("")]); len(found) > 0 {
			if wrong++; wrong <= 5 {
				r.Errorf("a watch of %s on %s: %q", w.tenant.path, w.tenant.shard, found)
			}
		}
	}
	if wrong > 0 {
		r.Errorf("%d of %d watches are not as what happened", wrong, len(r.watchers.all))
	}
	return out
}

// mustNotNotice fails the test if a request failed, but in some phases.
func (j judged) mustNotNotice(t *testing.T, except ...string) {
	t.Helper()
	for name, m := range j.phases {
		if m.failed > 0 && !slices.Contains(except, name) {
			t.Errorf("%s: %d of %d requests failed", name, m.failed, m.requests)
		}
	}
}

// I15: an installation is rolled to this version, and back, by the steps of docs/UPGRADE.md. No request fails, no watch
// misses an event, and each shard changes its leader once for each way. That a watch which goes on at a replica that
// has just started lists once is as at any restart (docs/OPERATIONS.md).
func TestNobodyNoticesARollUpAndBackI15(t *testing.T) {
	r := install(t)
	r.staysAsBefore()
	r.load.begin("up")
	r.roll(newer())
	r.stays("between")
	r.load.begin("back")
	r.roll(older())
	r.stays("after")
	j := r.finish()
	j.mustNotNotice(t)
	for shard, terms := range j.terms {
		if terms != 3 { // with the one that led before
			t.Errorf("shard %s: %d terms, want one before, one of the new version, and one after", shard, terms)
		}
	}
	t.Logf("p99 %.1f ms before, %.1f ms up, %.1f ms between, %.1f ms back, %.1f ms after; at most %.1f ms without a leader",
		ms(j.phases["before"].p99), ms(j.phases["up"].p99), ms(j.phases["between"].p99), ms(j.phases["back"].p99), ms(j.phases["after"].p99), ms(j.longest))
}
