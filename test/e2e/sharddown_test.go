package e2e

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/test/e2e/harness"
)

var shardDownFlag = flag.Duration("shard-down", 3*time.Second, "how long users write and read while each shard is down, in TestAFrontServesWhicheverShardIsDown")

// I11, at the entrance: while any one shard is down with its etcd, users of all others notice nothing, through any
// front, and workspaces below their clusters become Ready. So it is, too, once a front was restarted, and once all
// other replicas were. Users of what is down are told which it is.
func TestAFrontServesWhicheverShardIsDownI11(t *testing.T) {
	t.Parallel()
	s := newShardDown(t, harness.Install(t, "eu1", "us1"))
	for _, down := range s.All() {
		stop := s.use(down)
		time.Sleep(100 * time.Millisecond) // they notice nothing of the death itself
		down.Kill()
		died := time.Now()
		s.part(down)
		stop("it has died")
		for _, m := range s.All() {
			if m != down {
				m.WaitHeard(t, len(s.Others)-1)
			}
		}
		noticed := time.Now() // what was created before may have been assigned to it, and waits for its return
		t.Logf("all have noticed that %s has died after %v", down.Name, noticed.Sub(died).Round(time.Millisecond))
		s.mustBeUnreachable(down)

		for _, f := range s.fronts[:1] {
			f.Signal(syscall.SIGTERM)
			if code := f.Wait(); code != 0 {
				t.Errorf("%s ended with %d", f.Name(), code)
			}
			f.Again()
			f.WaitReady()
		}
		stop = s.use(down)
		s.part(down)
		stop("a front was restarted")

		for _, m := range s.All() {
			if m != down {
				m.KillReplicas()
				for _, r := range m.Replicas {
					r.Again()
				}
			}
		}
		for _, m := range s.All() {
			if m != down {
				m.WaitHeard(t, len(s.Others)-1)
				m.Leader(t)
			}
		}
		stop = s.use(down)
		s.part(down)
		stop("all other replicas were restarted")
		s.awaitBelow(noticed, down)

		down.Again(t)
		for _, m := range s.All() {
			m.WaitHeard(t, len(s.Others))
		}
		s.awaitBelow(time.Time{}, nil)
		for _, f := range s.fronts {
			harness.Eventually(t, "users of "+down.Name+" are served again", func() bool { return s.write(f, s.on[down.Name]) == nil })
		}
	}
	t.Logf("%v for each shard that was down: %d writes, %d reads and %d workspaces (%d of them before all had noticed) of users of the others, %d failed",
		*shardDownFlag, s.writes, s.reads, s.workspaces, s.early, s.failed)
	if s.writes == 0 || s.reads == 0 || s.workspaces == s.early {
		t.Error("this scenario shows nothing")
	}
}

// shardDown is an installation of which one shard after the other is down, and its users.
type shardDown struct {
	*testing.T
	*harness.Installation
	fronts []*harness.Front
	on     map[string]string // the path of a cluster on each shard

	mu                                sync.Mutex
	writes, reads, workspaces, failed int
	// of the workspaces those that were created before all noticed that a shard had died
	early int
	below []below
}

// below is a workspace that a user has created in a cluster.
type below struct {
	name, in string
	at       time.Time
}

// awaitBelow waits until the workspaces that were created since a time are Ready, none of them on the shard that is
// down.
func (s *shardDown) awaitBelow(since time.Time, down *harness.ShardMember) {
	s.Helper()
	s.below = slices.DeleteFunc(s.below, func(b below) bool {
		if b.at.Before(since) {
			return false
		}
		if _, shard := awaitReady(s.T, s.fronts, b.in, b.name); down != nil && shard == down.Name {
			s.Errorf("%s is down, and workspace %s is on it", down.Name, b.name)
		}
		return true
	})
	if down != nil {
		s.early += len(s.below)
	}
}

func newShardDown(t *testing.T, i *harness.Installation) *shardDown {
	t.Helper()
	s := &shardDown{T: t, Installation: i, fronts: []*harness.Front{i.StartFront(), i.StartFront()}, on: map[string]string{"root": "root"}}
	for n := 0; len(s.on) < len(i.All()); n++ {
		name := fmt.Sprintf("ws-%d", n)
		create(t, s.fronts, "root", name)
		if _, shard := awaitReady(t, s.fronts, "root", name); s.on[shard] == "" {
			s.on[shard] = "root:" + name
		}
	}
	for _, f := range s.fronts {
		f.WaitSnapshot()
	}
	return s
}

// mustBeUnreachable checks that workspaces whose shard is down do not pass for ready where the Workspace can be read.
func (s *shardDown) mustBeUnreachable(down *harness.ShardMember) {
	s.Helper()
	if down == s.Root { // which has them
		return
	}
	name := strings.TrimPrefix(s.on[down.Name], "root:")
	for _, command := range []string{"list", "tree"} {
		cmd := harness.Command(s.T, "regent", "ws", command, "root", "--kubeconfig="+s.Kubeconfig())
		out, _ := cmd.CombinedOutput() // a tree that is not complete fails
		shown := false
		for line := range strings.Lines(string(out)) {
			shown = shown || strings.Contains(line, name) && strings.Contains(line, down.Name) && strings.Contains(line, "Unreachable")
		}
		if !shown {
			s.Errorf("%s is down, and regent ws %s says of %s:\n%s", down.Name, command, name, out)
		}
	}
}

// part waits for one of the three parts of the time that a shard is down, and sees that its users are told.
func (s *shardDown) part(down *harness.ShardMember) {
	s.Helper()
	for end := time.Now().Add(*shardDownFlag / 3); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		for _, f := range s.fronts {
			if status, body := f.Get("/clusters/" + s.on[down.Name] + "/api/v1/namespaces"); status != http.StatusServiceUnavailable || !strings.Contains(body, "shard "+down.Name) {
				s.Errorf("%s is down, and its users are told %d %s", down.Name, status, body)
			}
		}
	}
}

// use has users of all shards but one write and read through each front, and create workspaces, until the returned
// function is called.
func (s *shardDown) use(down *harness.ShardMember) (stop func(when string)) {
	ctx, cancel := context.WithCancel(s.Context())
	var using sync.WaitGroup
	for _, f := range s.fronts {
		for _, m := range s.All() {
			if m != down {
				using.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						s.once(f, s.on[m.Name], n)
						time.Sleep(20 * time.Millisecond)
					}
				})
			}
		}
	}
	return func(when string) {
		s.Helper()
		cancel()
		using.Wait()
		if s.failed > 0 {
			s.Fatalf("%s is down (%s), and users of others notice", down.Name, when)
		}
	}
}

// once writes to a cluster, and reads what was written. Now and then it creates a workspace there.
func (s *shardDown) once(f *harness.Front, cluster string, n int) {
	const workspaceEach = 20
	cms := f.Kube(cluster).CoreV1().ConfigMaps("default")
	cm, err := cms.Create(s.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "written-"}}, metav1.CreateOptions{})
	s.count(&s.writes, err)
	if err == nil {
		_, err = cms.Get(s.Context(), cm.Name, metav1.GetOptions{})
		s.count(&s.reads, err)
	}
	if n%workspaceEach != 0 {
		return
	}
	name := "below-" + cm.Name[len("written-"):]
	began := time.Now()
	_, err = f.Dynamic(cluster).Resource(harness.Workspaces).Create(s.Context(), harness.NewWorkspace(name), metav1.CreateOptions{})
	s.count(&s.workspaces, err)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.below = append(s.below, below{name, cluster, began})
	}
}

func (s *shardDown) count(what *int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *what++; err != nil {
		s.failed++
		s.Errorf("a user is told: %v", err)
	}
}

func (s *shardDown) write(f *harness.Front, cluster string) error {
	_, err := f.Kube(cluster).CoreV1().ConfigMaps("default").Create(s.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "written-"}}, metav1.CreateOptions{})
	return err
}
