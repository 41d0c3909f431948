package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/bundle"
	"github.com/regent-project/regent/test/e2e/harness"
)

var (
	historyObjects = flag.Int("history-objects", 150, "how many objects the workspace has in TestAnySecondOfABackupIsWhatEtcdHadThen")
	historyMoments = flag.Int("history-moments", 5, "to how many random moments it goes back")
	historyWrites  = flag.Int("history-writes", 400, "how many writes there are meanwhile, at least")
	historyKills   = flag.Int("history-kills", 2, "how often who follows a shard is killed in TestAKillLosesWhatWasWrittenInTheLastSecond")
)

// A second is promised, and what it was is logged. On a machine that is busy with other things a backup is no later
// than late, and once in several times no later than soon.
const late, soon = 20 * time.Second, 4 * time.Second

// Whatever moment a backup is asked for, it has what etcd's own history has: the last state that was there then, and
// nothing of what was begun later. A workspace that is put back to it, in place, in place with its uids, or beside, has
// that, and nothing else of the shard is touched: no other cluster, no term, no watch.
func TestAnySecondOfABackupIsWhatEtcdHadThen(t *testing.T) {
	t.Parallel()
	s := newFollowed(t, "team", "other")
	s.follow()
	s.fill("team", *historyObjects)
	filled := s.calm().at // a moment right after the last creation may be one before it, for the backup
	stop := s.write("team", "team", "other")
	s.awaitWrites(1 + rand.IntN(50))
	calm := []calmMoment{s.calm()}
	s.awaitWrites(1 + rand.IntN(50))
	s.kill()
	s.follow()
	calm = append(calm, s.calm())
	s.awaitWrites(*historyWrites)
	s.awaitBases(2)
	calm = append(calm, s.calm())
	stop()
	end := time.Now()

	for _, at := range calm {
		s.mustHave(at)
	}
	from := s.inspect().Spans[0].From
	for range *historyMoments {
		s.mustBeOf(from.Add(rand.N(end.Sub(from))))
	}
	t.Logf("%d writes of %d revisions; extracted in %v; the oldest write that a moment lacks was acknowledged %v before", len(s.writes), s.history.now(), s.took, s.lag.Round(time.Millisecond))

	moment := func() string { return filled.Add(rand.N(end.Sub(filled))).Format(time.RFC3339Nano) }
	for _, how := range []string{"--exact", "--prune"} {
		at := moment()
		s.remove("team")
		s.alone("team", func() {
			began := time.Now()
			out := s.user.must("root:team", "cluster", "restore", "root:team", "--backup="+s.directory, "--at="+at, "--identity="+s.key, how)
			t.Logf("%s after %v: %s", how, time.Since(began), strings.TrimSpace(out))
		})
		s.mustBeBack("team", at, how == "--exact")
	}
	for name, how := range map[string][]string{"beside": nil, "unchecked": {"--unchecked"}} {
		at, file := moment(), filepath.Join(t.TempDir(), name)
		s.alone(name, func() {
			began := time.Now()
			s.extract(file, "team", at)
			out := s.user.must("root:"+name, append([]string{"cluster", "import", file, "root:" + name}, how...)...)
			t.Logf("beside %s after %v: %s", how, time.Since(began), strings.TrimSpace(out))
			ws, err := s.b.Dynamic("root").Resource(harness.Workspaces).Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			s.clusters[name], _, _ = unstructured.NestedString(ws.Object, "spec", "cluster")
		}, "/registry/tenancy.kcp.io/workspaces/root/"+name)
		s.mustBeBack(name, at, false)
	}
	s.mustHave(s.calm()) // also what a restore has written is in the backup
}

// The process that follows a shard is killed, and at last all processes at once, while clients write: what was
// acknowledged a second before is in the backup.
func TestAKillLosesWhatWasWrittenInTheLastSecond(t *testing.T) {
	t.Parallel()
	s := newFollowed(t, "team")
	s.follow()
	var lost []time.Duration
	for n := range *historyKills + 1 {
		stop := s.write("team", "team", "team")
		s.awaitBackup()
		// what is promised is a time: there must be writes that are older
		<-time.After(soon + rand.N(time.Second))
		killed := time.Now()
		if n == *historyKills {
			s.gone.Store(true)
			s.etcd.Kill()
			s.a.Kill()
			s.b.Kill()
		}
		s.kill()
		stop()
		of, _ := s.extract(filepath.Join(t.TempDir(), "last"), "team", "")
		oldest := killed
		for _, w := range s.writes {
			if w.revision > of.Revision && w.ended.Before(oldest) {
				oldest = w.ended
			}
		}
		if lost = append(lost, killed.Sub(oldest).Round(time.Millisecond)); killed.Sub(oldest) > late {
			t.Errorf("a write that was acknowledged %v before the kill is not in the backup, which has revision %d of %v", killed.Sub(oldest), of.Revision, of.Time)
		}
		if n < *historyKills {
			s.follow()
		}
	}
	if slices.Sort(lost); lost[0] > soon {
		t.Errorf("each kill lost what was acknowledged %v before, or more", lost[0])
	}
	t.Logf("the oldest write that is lost was acknowledged so long before the kill: %v", lost)
}

// followedShard is a shard of two replicas, of which a backup is made, and all that is known of its history without the
// backup: what etcd tells, and when clients were answered.
type followedShard struct {
	*testing.T
	etcd           *harness.Etcd
	history        *etcdHistory
	a, b           *harness.Replica
	user           regentUser
	key, directory string
	clusters       map[string]string // by the names of their workspaces
	backup         *harness.Process

	gate   sync.RWMutex // held for each write
	gone   atomic.Bool  // all processes are killed, or soon
	acked  atomic.Int64 // how many writes were acknowledged
	writes []ackedWrite // of writers that have ended
	own    map[string]bool
	took   []time.Duration
	lag    time.Duration
	last   int
}

func newFollowed(t *testing.T, workspaces ...string) *followedShard {
	t.Helper()
	files := t.TempDir()
	s := &followedShard{T: t, etcd: harness.StartEtcd(t), key: filepath.Join(files, "backup.key"), directory: filepath.Join(files, "backup"), clusters: map[string]string{}, own: map[string]bool{}}
	s.history = recordEtcd(t, s.etcd.Client(t))
	recipient, err := harness.Command(t, "regent", "backup", "key", s.key).Output()
	if err != nil {
		t.Fatal(err)
	}
	shard := harness.NewShard(s.etcd.URL)
	shard.Timings = harness.Default // no term may end because the machine is busy
	shard.Args = []string{"--backup-recipients=" + strings.TrimSpace(string(recipient))}
	s.a, s.b = shard.Start(t, "a"), shard.Start(t, "b")
	s.b.WaitRoot()
	s.user = regentUser{t, filepath.Join(s.b.Root, "admin.kubeconfig")}
	for _, name := range workspaces {
		s.b.CreateWorkspace(name)
		s.clusters[name] = s.b.WaitWorkspace(name)
		if _, err := s.b.Dynamic("root:"+name).Resource(definitions).Create(t.Context(), definitionOf("Widget", "widgets"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "the definition is established", func() bool { return isEstablished(t.Context(), s.b, "root:"+name, "widgets.example.com") })
	}
	return s
}

// follow starts who follows the shard.
func (s *followedShard) follow() {
	s.Helper()
	s.backup = harness.Start(s, "backup", harness.Binary("regent"), "backup", "run", s.directory, "--kubeconfig="+filepath.Join(s.a.Root, "admin.kubeconfig"), "--base-every=10s", "--keep=1h")
	s.awaitBases(1)
}

func (s *followedShard) kill() {
	s.Helper()
	s.backup.Kill()
}

// inspected is what regent backup inspect says.
type inspected struct {
	Bases int
	Spans []struct {
		From       time.Time
		ToRevision int64
	}
}

func (s *followedShard) inspect() (is inspected) {
	s.Helper()
	out, err := harness.Command(s, "regent", "backup", "inspect", s.directory, "-o", "json").Output()
	if err == nil {
		err = json.Unmarshal(out, &is)
	}
	if err != nil || len(is.Spans) == 0 {
		return inspected{}
	}
	return is
}

func (s *followedShard) awaitBases(n int) {
	s.Helper()
	harness.Eventually(s, fmt.Sprint("the backup has so many bases: ", n), func() bool { return s.inspect().Bases >= n })
}

// awaitBackup waits until the backup has what etcd has now.
func (s *followedShard) awaitBackup() (revision int64) {
	s.Helper()
	revision = s.history.now()
	harness.Eventually(s, "the backup has all", func() bool {
		is := s.inspect()
		return len(is.Spans) > 0 && is.Spans[len(is.Spans)-1].ToRevision >= revision
	})
	return revision
}

// awaitWrites waits until so many more writes were acknowledged.
func (s *followedShard) awaitWrites(n int) {
	s.Helper()
	upTo := s.acked.Load() + int64(n)
	harness.Eventually(s, "clients write", func() bool { return s.acked.Load() >= upTo })
}

// calmMoment is one at which nobody wrote, and what etcd's revision was.
type calmMoment struct {
	at       time.Time
	revision int64
}

// calm has all writers wait until the backup has what they have written.
func (s *followedShard) calm() calmMoment {
	s.Helper()
	s.gate.Lock()
	defer s.gate.Unlock()
	revision := s.awaitBackup()
	return calmMoment{time.Now(), revision}
}

// fill creates ConfigMaps in a workspace, of which remove removes some.
func (s *followedShard) fill(workspace string, n int) {
	s.Helper()
	maps := s.b.Kube("root:" + workspace).CoreV1().ConfigMaps("default")
	places := make(chan struct{}, 16)
	var creating sync.WaitGroup
	for i := range n {
		places <- struct{}{}
		creating.Go(func() {
			defer func() { <-places }()
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("still-%d", i), Labels: map[string]string{"part": fmt.Sprint(i % 3)}}, Data: map[string]string{"text": strings.Repeat("x", 700)}}
			if _, err := maps.Create(s.Context(), cm, metav1.CreateOptions{}); err != nil {
				s.Error(err)
			}
		})
	}
	creating.Wait()
}

// remove is a mistake: a third of what fill has made.
func (s *followedShard) remove(workspace string) {
	s.Helper()
	if err := s.b.Kube("root:"+workspace).CoreV1().ConfigMaps("default").DeleteCollection(s.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "part=1"}); err != nil {
		s.Fatal(err)
	}
}

// extract writes the bundle of a workspace as it was (empty: last) into a file, and returns what is in it, as asJSON
// has it.
func (s *followedShard) extract(name, workspace, at string) (of bundle.Header, objects map[string]string) {
	s.Helper()
	args := []string{"backup", "extract", s.directory, "root:" + workspace, "-f", name, "--identity=" + s.key, "--unsealed"}
	if at != "" {
		args = append(args, "--at="+at)
	}
	began := time.Now()
	if err := offline(s.T, args...); err != nil {
		s.Fatalf("at %s: %v", at, err)
	}
	s.took = append(s.took, time.Since(began).Round(time.Millisecond))
	file, err := os.Open(name) //nolint:gosec // the test's own
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		s.Fatal(err)
	}
	all, err := bundle.Open(file, info.Size())
	if err != nil || len(all) != 1 {
		s.Fatalf("%d bundles, %v", len(all), err)
	}
	objects = map[string]string{}
	if err := all[0].Each(func(o bundle.Object) error {
		objects[o.Key] = asJSON(s, o.Key, o.Object)
		return nil
	}); err != nil {
		s.Fatal(err)
	}
	return all[0].Header, objects
}

// mustHave checks that the backup has, of a moment at which nobody wrote, what etcd had.
func (s *followedShard) mustHave(m calmMoment) {
	s.Helper()
	of, got := s.extract(filepath.Join(s.TempDir(), "calm"), "team", m.at.Format(time.RFC3339Nano))
	if of.Revision < m.revision {
		s.Errorf("at %v etcd had revision %d, and the backup goes back to %d", m.at, m.revision, of.Revision)
	}
	s.mustEqual(fmt.Sprintf("at %v, when nobody wrote", m.at), got, s.history.objects(s.clusters["team"], m.revision))
}

// mustBeOf checks what the backup has of any moment.
func (s *followedShard) mustBeOf(at time.Time) {
	s.Helper()
	of, got := s.extract(filepath.Join(s.TempDir(), "any"), "team", at.Format(time.RFC3339Nano))
	s.mustEqual(fmt.Sprintf("at %v, revision %d", at, of.Revision), got, s.history.objects(s.clusters["team"], of.Revision))
	if of.Time.After(at) {
		s.Errorf("at %v it is of %v", at, of.Time)
	}
	for _, w := range s.writes {
		switch {
		case w.revision <= of.Revision && w.began.After(at):
			s.Errorf("at %v it has revision %d of a write that was begun at %v", at, w.revision, w.began)
		case w.revision > of.Revision:
			s.lag = max(s.lag, at.Sub(w.ended))
		}
	}
	if s.lag > late {
		s.Errorf("at %v it lacks what was acknowledged %v before", at, s.lag)
	}
}

func (s *followedShard) mustEqual(what string, got, want map[string]string) {
	s.Helper()
	if len(want) < 2 {
		s.Errorf("%s: etcd had %d objects only", what, len(want))
	}
	for key := range maps.Keys(want) {
		if _, ok := got[key]; !ok {
			s.Errorf("%s: it lacks %s", what, key)
		}
	}
	for key, is := range got {
		if was, ok := want[key]; !ok || is != was {
			s.Errorf("%s: %s is\n%s\nand was\n%s", what, key, is, was)
		}
	}
}

// alone does something to one workspace while somebody uses another one, and checks that nobody notices: nothing is
// written in another logical cluster, but by that user, at certain keys, and what goes on by itself; all terms go on,
// and so does a watch of the other workspace.
func (s *followedShard) alone(workspace string, do func(), keys ...string) {
	s.Helper()
	stop := s.write("other")
	check, terms := s.watch("other"), append(s.a.Terms(), s.b.Terms()...)
	before := s.history.now()
	do()
	after := s.history.now()
	stop()
	// Leaders renew Leases, a shard counts its workspaces, and replicas note what may be compacted. The freeze of a
	// logical cluster is a key, too.
	mark, others := "/"+s.clusters[workspace]+"/", append(keys, "/registry/.frozen/"+s.clusters[workspace], "/registry/core.kcp.io/shards/system:shards/root", "compact_rev_key")
	written := 0
	for _, c := range s.history.between(before, after) {
		switch {
		case strings.Contains(c.key, mark):
			written++
		case !s.own[c.key] && !strings.HasPrefix(c.key, "/registry/coordination.k8s.io/leases/system:admin/") && !slices.Contains(others, c.key):
			s.Errorf("revision %d is of %s", c.revision, c.key)
		}
	}
	if written == 0 {
		s.Errorf("nothing is written in %s", workspace)
	}
	if now := append(s.a.Terms(), s.b.Terms()...); !slices.Equal(now, terms) {
		s.Errorf("the terms were %v, and are %v", terms, now)
	}
	check()
}

// watch opens a watch of ConfigMaps. check ends it, and says if it was cut, or has not told what was written.
func (s *followedShard) watch(workspace string) (check func()) {
	s.Helper()
	maps := s.b.Kube("root:" + workspace).CoreV1().ConfigMaps("default")
	w, err := maps.Watch(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	var mu sync.Mutex
	told, cut := map[string]bool{}, false
	var following sync.WaitGroup
	following.Go(func() {
		for e := range w.ResultChan() {
			mu.Lock()
			if cm, ok := e.Object.(*corev1.ConfigMap); ok && e.Type != watch.Bookmark {
				told[cm.ResourceVersion] = true
			} else {
				cut = true
			}
			mu.Unlock()
		}
		mu.Lock()
		cut = true
		mu.Unlock()
	})
	s.Cleanup(w.Stop)
	since := s.history.now()
	return func() {
		s.Helper()
		harness.Eventually(s, "the watch has told all", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return cut || !slices.ContainsFunc(s.writes, func(one ackedWrite) bool {
				return one.revision > since && strings.HasPrefix(one.key, historyKey("configmaps", s.clusters[workspace], "")) && !told[fmt.Sprint(one.revision)]
			})
		})
		mu.Lock()
		wasCut := cut
		mu.Unlock()
		if wasCut {
			s.Errorf("a watch in %s was cut", workspace)
		}
		w.Stop()
		following.Wait()
	}
}

// mustBeBack compares what etcd has of a workspace with what team was at a time: all of it, or what users have written.
func (s *followedShard) mustBeBack(workspace, at string, exactly bool) {
	s.Helper()
	of, _ := s.extract(filepath.Join(s.TempDir(), "back"), "team", at)
	was, is := s.history.objects(s.clusters["team"], of.Revision), s.history.objects(s.clusters[workspace], s.history.now())
	for _, all := range []map[string]string{was, is} {
		maps.DeleteFunc(all, func(key, _ string) bool {
			return bundle.LeftAlone(key) != "" || strings.HasSuffix(key, "/"+clusters.RootCAConfigMap)
		})
		for key, text := range all {
			if !exactly {
				all[key] = asUsersWrote(s, text)
			}
		}
	}
	s.mustEqual(fmt.Sprintf("%s, back at %s", workspace, at), is, was)
}

// asUsersWrote leaves out of an object what a server writes.
func asUsersWrote(t testing.TB, text string) string {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &obj.Object); err != nil {
		t.Fatal(err)
	}
	obj.Object["metadata"] = map[string]any{"name": obj.GetName(), "namespace": obj.GetNamespace(), "labels": obj.GetLabels(), "finalizers": obj.GetFinalizers()}
	delete(obj.Object, "status")
	out, err := json.Marshal(obj.Object)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
