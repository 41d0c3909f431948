package bench

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/test/e2e/harness"
	"github.com/regent-project/regent/test/e2e/history"
)

// BenchmarkHang is from the SIGSTOP that a leader gets to the first committed write of the next leader's controller: of
// replicas that suspect whoever is silent, and of replicas that wait until the lease expires. It prints a table. Every
// hang counts, and each must be noticed as it was meant to be. Whoever was stopped goes on afterwards, finds that its
// term is over, and stands by.
func BenchmarkHang(b *testing.B) {
	modes := []*hanging{
		{detection: "suspect", trigger: "suspicion", n: *hangs, figure: "median", of: median, target: time.Second},
		{detection: "crash", trigger: "expiry", n: *expiries, figure: "maximum", of: slices.Max[[]time.Duration], target: harness.Default.Lease + harness.Default.Retry},
	}
	table, said, began := tableHead, "", time.Now()
	for _, h := range modes {
		if h.n == 0 {
			continue
		}
		b.Run(h.detection, func(b *testing.B) {
			m := start(b, "--leader-failure-detection="+h.detection)
			if said == "" {
				said = versions(b) + ".\n"
			}
			h.row = row{event: "SIGSTOP", name: fmt.Sprintf("Regent, `%s` (%s)", h.detection, h.trigger)}
			// also of a run that fails
			defer func() { table, said = table+h.row.String(), said+h.judge()+m.disk(b)+".\n" }()
			for len(h.row.samples) < h.n {
				h.take(b, m)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
	fmt.Printf("\n%s\n%s%s\n", table, said, closing(began))
}

// hanging is how leaders that hang are noticed, and what is expected of that.
type hanging struct {
	detection, trigger string
	n                  int
	figure             string // which of all has a target
	of                 func([]time.Duration) time.Duration
	target             time.Duration
	row                row
}

// take stops the leader until another has written, and then brings about that the same can be done once more.
func (h *hanging) take(b *testing.B, m *machine) {
	settle(300 * time.Millisecond)
	before := m.standby.Takeovers()
	took, first := m.writes.signal(b, m.leader.Process, syscall.SIGSTOP, history.FirstWrite, m.term)
	if first.pid != m.standby.PID() {
		b.Errorf("process %d made the first write of the next term, and %d stood by", first.pid, m.standby.PID())
	}
	if triggers := m.standby.TriggersSince(before); !slices.Equal(triggers, []string{h.trigger}) {
		b.Errorf("taken over because of %q, want %q", triggers, h.trigger)
	}
	h.row.samples = append(h.row.samples, took)
	progress("SIGSTOP, %s, %d of %d: %s, load average %.2f", h.detection, len(h.row.samples), h.n, show(took.took), took.load)

	m.leader.Signal(syscall.SIGCONT)
	harness.Eventually(b, "the one that was stopped stands by", func() bool {
		terms := m.leader.Terms()
		return terms[len(terms)-1].Reason != "" && m.leader.Follows()
	})
	m.term = first.term
	m.anew(b)
}

// judge compares with the target.
func (h *hanging) judge() string {
	if len(h.row.samples) == 0 {
		return ""
	}
	is, word := h.of(h.row.durations()), "met"
	if is > h.target {
		word = "missed"
	}
	return fmt.Sprintf("`%s`: the %s is %s; at most %s was the target: %s. ", h.detection, h.figure, show(is), show(h.target), word)
}

// anew deletes the Lease, and with it the memory of suspicions, which are damped: a term that began on one is not
// succeeded on another at once. It returns when either replica leads, under a new one, and the other stands by.
func (m *machine) anew(b *testing.B) {
	b.Helper()
	harness.Eventually(b, "the Lease is deleted", func() bool {
		ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
		defer cancel()
		err := m.standby.Leases().Delete(ctx, harness.LeaseName, metav1.DeleteOptions{})
		return err == nil || apierrors.IsNotFound(err)
	})
	next := m.writes.next(b, history.FirstWrite, m.term)
	m.term = next.term
	if next.pid == m.standby.PID() {
		m.leader, m.standby = m.standby, m.leader
	}
	m.awaitStandby(b)
}
