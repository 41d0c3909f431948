package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/regent-project/regent/test/e2e/harness"
)

// reconnects are what a client may say when its server ends and comes back: that, and nothing else.
var reconnects = []string{
	"connection refused", "connection reset by peer", "EOF", "http2: client conn", "GOAWAY", "use of closed network connection",
	"the server is shutting down", "apiserver is shutting down", "broken pipe",
}

// saysReconnect reports whether a line says that, or that a renewal was made whose answer was lost with the server: the
// next one finds the Lease changed, and reads it.
func saysReconnect(line string) bool {
	return slices.ContainsFunc(reconnects, func(reconnect string) bool { return strings.Contains(line, reconnect) }) ||
		strings.Contains(line, "Failed to update lease optimistically") && strings.Contains(line, "the object has been modified")
}

// errorsOf are the lines in which the controller says of something else than its connection that it went wrong.
func errorsOf(p *harness.Process) (others []string) {
	return slices.DeleteFunc(p.Lines("\tERROR\t"), saysReconnect)
}

// What kubebuilder scaffolds needs nothing but the workspace's kubeconfig. The replica that it goes through leads, and
// ends in all ways, while users go on: what they want is done, once the controller has its connection back.
func TestAControllerOfKubebuilderWorksWhileItsServerComesAndGoes(t *testing.T) {
	t.Parallel() // much of it is waiting
	shard := harness.NewShard(harness.StartEtcd(t).URL)
	a, b := shard.Start(t, "a"), shard.Start(t, "b")
	leader, _ := harness.Leader(t, a, b)
	leader.WaitRoot()
	plain, elected := openShop(t, b, "plain"), openShop(t, b, "elected")
	shops := map[*shop]*harness.Process{
		plain: plain.start("plain", a),
		// It would end if it could not renew for so long.
		elected: elected.start("elected", a, "--leader-elect", "--lease-duration=90s", "--renew-deadline=80s", "--retry-period=2s"),
	}
	plain.kubectlWorks()

	var stops []func()
	for s := range shops {
		stops = append(stops, s.trade())
	}
	for _, fault := range []struct {
		name string
		end  func()
	}{
		{"step down", func() { handOver(t, a, b) }},
		{"SIGTERM", func() { a.Signal(syscall.SIGTERM); a.Wait() }},
		{"kill -9", func() { a.Kill() }}, // whichever process it is by then
	} {
		if !a.Leads() {
			harness.Eventually(t, "the standby hears the leader", a.Follows)
			handOver(t, b, a)
			harness.Eventually(t, "the replica leads that the controllers go through", a.Leads)
		}
		fault.end()
		harness.Eventually(t, "the other replica leads", b.Leads)
		if !a.Alive() {
			a.Again()
			a.WaitReady()
		}
		for s := range shops {
			name := "after-" + strings.ToLower(strings.ReplaceAll(fault.name, " ", ""))
			s.create(name, "blue", 2)
			// After some refused connections in a row client-go's reflector waits for up to a minute.
			harness.EventuallyIn(t, 3*harness.Patience, "what is wanted after "+fault.name+" is made", func() bool { return s.missing(name) == "" })
		}
	}
	for _, stop := range stops {
		stop()
	}
	for s, process := range shops {
		s.mustSettle()
		harness.Eventually(t, s.path+" has the controller's Event", func() bool { return s.hasEvent("after-kill-9", "Made") })
		s.run("delete", "widgets", "--all", "-n", shelf)
		s.mustSettle()
		process.Signal(syscall.SIGTERM)
		if code := process.Wait(); code != 0 {
			t.Errorf("%s: exit code %d", s.path, code)
		}
		if len(process.Lines("\tERROR\t")) == 0 {
			t.Errorf("%s: the controller has never lost its server", s.path)
		}
		if others := errorsOf(process); len(others) > 0 {
			t.Errorf("%s: %d errors beside reconnects, the first: %s", s.path, len(others), others[0])
		}
	}
}

// I3, for a manager of controller-runtime with nothing but the one line. Without it, the same writes are made.
func TestAControllerOfKubebuilderThatWakesUpLateIsFencedByOneLine(t *testing.T) {
	t.Parallel() // most of it is waiting
	r := harness.NewShard(harness.StartEtcd(t).URL).Start(t, "a")
	r.WaitRoot()
	for _, fenced := range []bool{true, false} {
		t.Run(fmt.Sprintf("fenced=%t", fenced), func(t *testing.T) { wakesUpLate(t, r, fenced) })
	}
}

func wakesUpLate(t *testing.T, r *harness.Replica, fenced bool) {
	s := openShop(t, r, fmt.Sprintf("fenced-%t", fenced))
	flags := []string{"--leader-elect", fmt.Sprintf("--fenced=%t", fenced), "--lease-duration=25s", "--renew-deadline=20s", "--retry-period=1s"}
	first := s.start("first", r, flags...)
	s.create("early", "blue", 1)
	harness.Eventually(t, "the first one works", func() bool { return s.missing("early") == "" })
	second := s.start("second", r, flags...)
	harness.Eventually(t, "the second one stands by", func() bool { return len(second.Lines("ttempting to acquire leader lease")) > 0 })

	first.Signal(syscall.SIGSTOP)
	// The second need not wait for a lease of 25 s: so the first still takes itself for the leader when it goes on.
	was := s.holder()
	if _, err := r.Kube(s.path).CoordinationV1().Leases("default").Patch(t.Context(), "widgets.shop.example.com", types.MergePatchType,
		[]byte(`{"spec":{"leaseDurationSeconds":1}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the second one leads", func() bool { return s.holder() != was })
	s.create("late", "red", 1)
	harness.Eventually(t, "the second one works", func() bool { return s.missing("late") == "" })

	first.Signal(syscall.SIGCONT)
	if !fenced {
		harness.Eventually(t, "what the first one writes beside the second is made", func() bool { return len(first.Lines("Applied", "late")) > 0 })
		return
	}
	harness.Eventually(t, "the first one is refused", func() bool { return len(first.Lines("Reconciler error", "late", "the term is over")) > 0 })
	if len(first.Lines("Applied", "late")) > 0 {
		t.Error("what it wrote was made")
	}
	if refused, counted := r.Metric(`regent_fencing_refused_total{cause="deposed"}`); !counted || refused < 1 {
		t.Errorf("the server has refused %v writes", refused)
	}
	if code := first.Wait(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	s.create("after", "blue", 1)
	harness.Eventually(t, "the second one works on", func() bool { return s.missing("after") == "" })
	if others := errorsOf(second); len(others) > 0 {
		t.Errorf("errors of the second one, the first: %s", others[0])
	}
}
