package harness

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coordinationv1beta1client "k8s.io/client-go/kubernetes/typed/coordination/v1beta1"
	"k8s.io/utils/ptr"
)

// LeaseName is that of the shard's election.
const LeaseName = "regent-controllers"

// LeasesOf are the names of the Leases under which a shard with so many ranges is led.
func LeasesOf(ranges int) (names []string) {
	if ranges == 1 {
		return []string{LeaseName}
	}
	for k := range ranges {
		names = append(names, fmt.Sprintf("%s-%d", LeaseName, k))
	}
	return names
}

// DividedInto is the flag that asks for so many ranges.
func DividedInto(ranges int) string { return fmt.Sprintf("--leader-election-ranges=%d", ranges) }

// Leases is a client for the shard's Lease.
func (r *Replica) Leases() coordinationclient.LeaseInterface {
	r.t.Helper()
	return r.Kube("system:admin").CoordinationV1().Leases(metav1.NamespaceSystem)
}

// Candidates is a client for the LeaseCandidates of the shard's election.
func (r *Replica) Candidates() coordinationv1beta1client.LeaseCandidateInterface {
	r.t.Helper()
	return r.Kube("system:admin").CoordinationV1beta1().LeaseCandidates(metav1.NamespaceSystem)
}

// Lease reads the shard's Lease.
func (r *Replica) Lease() *coordinationv1.Lease {
	r.t.Helper()
	lease, err := r.Leases().Get(r.t.Context(), LeaseName, metav1.GetOptions{})
	if err != nil {
		r.t.Fatalf("read the Lease: %v", err)
	}
	return lease
}

// RenewedAt returns when the holder last renewed the lease, or the presence that keeps it; zero if it never has.
func (r *Replica) RenewedAt() time.Time {
	r.t.Helper()
	lease := r.Lease()
	if lease.Spec.RenewTime == nil && len(lease.OwnerReferences) > 0 {
		presence, err := r.Leases().Get(r.t.Context(), lease.OwnerReferences[0].Name, metav1.GetOptions{})
		if err != nil {
			r.t.Fatalf("read the Lease of the holder's presence: %v", err)
		}
		lease = presence
	}
	return ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time
}

// Holder is the Lease's; empty if there is none.
func Holder(lease *coordinationv1.Lease) string {
	if lease == nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// Leader waits until exactly one of the replicas leads, and returns it and the others.
func Leader(t testing.TB, replicas ...*Replica) (leader *Replica, others []*Replica) {
	t.Helper()
	Eventually(t, "exactly one leads", func() bool {
		leader, others = nil, nil
		leaders := 0
		for _, r := range replicas {
			if r.Leads() {
				leader = r
				leaders++
			} else {
				others = append(others, r)
			}
		}
		return leaders == 1
	})
	return leader, others
}

// ElectionsName is that of the election of who elects, in mode coordinated.
const ElectionsName = "regent-elections"

// Follows reports whether the replica hears the process of who leads, and of who elects, if there is one and it is
// another.
func (r *Replica) Follows() bool {
	is := func(sample string) bool { v, _ := r.Metric(sample); return v == 1 }
	hears := func(name string) bool {
		return is(`regent_failure_detection_contact{name="` + name + `",state="alive"}`)
	}
	return hears(LeaseName) && (r.shard.Mode != Coordinated || hears(ElectionsName) || is(`leader_election_master_status{name="`+ElectionsName+`"}`))
}

// Takeovers counts those of the process, by trigger.
func (r *Replica) Takeovers() map[string]int {
	r.t.Helper()
	status, body := r.metrics("regent_takeover_phase_seconds")
	if status != http.StatusOK {
		r.t.Fatalf("metrics of %s: %d %s", r.name, status, body)
	}
	counts := map[string]int{}
	for _, sample := range takeover.FindAllStringSubmatch(body, -1) {
		n, err := strconv.Atoi(sample[2])
		if err != nil {
			r.t.Fatal(err)
		}
		counts[sample[1]] = n
	}
	return counts
}

var takeover = regexp.MustCompile(`(?m)^regent_takeover_phase_seconds_count{name="regent-controllers",phase="acquire",trigger="([^"]*)"} (\d+)$`)

// TriggersSince are those of the process's takeovers since it had those before, in no order.
func (r *Replica) TriggersSince(before map[string]int) (triggers []string) {
	r.t.Helper()
	for trigger, n := range r.Takeovers() {
		for range n - before[trigger] {
			triggers = append(triggers, trigger)
		}
	}
	return triggers
}

// CreateWorkspace creates a Workspace in root, which the leader makes Ready.
func (r *Replica) CreateWorkspace(name string) {
	r.t.Helper()
	if err := r.TryCreateWorkspace(r.t.Context(), name); err != nil {
		r.t.Fatalf("create workspace %s through %s: %v", name, r.name, err)
	}
}

// TryCreateWorkspace is CreateWorkspace that returns its error. It applies the Workspace, so that it is the leader who
// makes its logical cluster: a plain creation would leave nothing to do. So a Workspace that is Ready says that
// somebody leads and works.
func (r *Replica) TryCreateWorkspace(ctx context.Context, name string) error {
	_, err := r.Dynamic("root").Resource(Workspaces).Apply(ctx, name, NewWorkspace(name), metav1.ApplyOptions{FieldManager: "e2e"}) //nolint:contextcheck // the user is let in for the whole test
	return err
}

// NewWorkspace returns a Workspace to create.
func NewWorkspace(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": Workspaces.GroupVersion().String(), "kind": "Workspace", "metadata": map[string]any{"name": name},
	}}
}

// WaitWorkspace waits until a Workspace in root is Ready and answers, and returns the name of its cluster.
func (r *Replica) WaitWorkspace(name string) (cluster string) {
	r.t.Helper()
	workspaces := r.Dynamic("root").Resource(Workspaces)
	Eventually(r.t, "workspace "+name+" is Ready through "+r.name, func() bool {
		w, err := workspaces.Get(r.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		phase, _, _ := unstructured.NestedString(w.Object, "status", "phase")
		cluster, _, _ = unstructured.NestedString(w.Object, "spec", "cluster")
		return phase == "Ready"
	})
	for _, path := range []string{"root:" + name, cluster} {
		if _, err := r.Kube(path).CoreV1().Namespaces().Get(r.t.Context(), metav1.NamespaceDefault, metav1.GetOptions{}); err != nil {
			r.t.Fatalf("the new cluster does not answer at /clusters/%s of %s: %v", path, r.name, err)
		}
	}
	return cluster
}

// WaitRoot waits until the shard's first leader has brought up root.
func (r *Replica) WaitRoot() {
	r.t.Helper()
	client := r.Kube("root").CoreV1().Namespaces()
	Eventually(r.t, "root answers through "+r.name, func() bool {
		_, err := client.Get(r.t.Context(), metav1.NamespaceDefault, metav1.GetOptions{})
		return err == nil
	})
}

// Overwrite makes another identity the holder of the Lease, as a foreign candidate that takes it would. seconds is for
// how long it says to hold it. It returns the Lease as written.
//
// It raises leaseTransitions, as every new holder must: the server refuses others, because writes of older terms would
// be accepted again.
func (r *Replica) Overwrite(identity string, seconds int32) *coordinationv1.Lease {
	r.t.Helper()
	for {
		lease, err := r.Leases().Get(r.t.Context(), LeaseName, metav1.GetOptions{})
		if err != nil {
			r.t.Fatalf("read the Lease: %v", err)
		}
		transitions, now := int32(1), metav1.NowMicro()
		if lease.Spec.LeaseTransitions != nil {
			transitions = *lease.Spec.LeaseTransitions + 1
		}
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &identity, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now, LeaseTransitions: &transitions}
		written, err := r.Leases().Update(r.t.Context(), lease, metav1.UpdateOptions{})
		if err == nil {
			return written
		}
		if !apierrors.IsConflict(err) { // a renewal came between
			r.t.Fatalf("overwrite the Lease: %v", err)
		}
	}
}

// StepDown asks the replica, which must lead, to end its term. It does not campaign for a retry period then: whoever
// hands leadership back to it sooner measures that.
func (r *Replica) StepDown(reason string) {
	r.t.Helper()
	if err := r.TryStepDown(reason); err != nil {
		r.t.Fatalf("ask %s to step down: %v", r.name, err)
	}
}

// TryStepDown is StepDown that returns its error: who has just said that it leads may have lost its lease meanwhile.
func (r *Replica) TryStepDown(reason string) error {
	r.t.Helper()
	return r.tryStepDown(reason, "")
}

// TryStepDownFrom is TryStepDown from one of several ranges.
func (r *Replica) TryStepDownFrom(k int, reason string) error {
	r.t.Helper()
	return r.tryStepDown(reason, strconv.Itoa(k))
}

func (r *Replica) tryStepDown(reason, of string) error {
	request := r.Kube("system:admin").Discovery().RESTClient().Post().AbsPath("/election/step-down")
	if of != "" {
		request.Param("range", of)
	}
	return request.Body(fmt.Appendf(nil, `{"reason": %q}`, reason)).Do(r.t.Context()).Error()
}

// Term is one of a process's terms, as its log tells it.
type Term struct{ Epoch, Reason string }

// Deposed reports whether the term ended because somebody else took its lease. The leader sees that in the Lease, or a
// write that it makes just then is refused: whichever comes first.
func (t Term) Deposed() bool { return t.Reason == "deposed" || t.Reason == "fenced" }

// Terms returns the terms of the shard's leader, or of those of its ranges, in the process's log, and fails the test if
// one begins before the one before, of the same Lease, has ended (I1): Reason is why it ended, empty for the one that
// has not. That its work was joined is not in the log. After the Lease was deleted an epoch may come again, with
// another holder and uid.
func (r *Replica) Terms() []Term {
	r.t.Helper()
	var terms []Term
	lasts := map[string]int{} // by Lease, the index of its last one
	for line := range strings.Lines(r.Log()) {
		lease := leaseInLog.FindString(line)
		if lease == "" { // of who elects, in mode coordinated
			continue
		}
		began, ended := strings.Contains(line, `"Leading" `), strings.Contains(line, `"The term has ended" `)
		last, some := lasts[lease]
		switch runs := some && terms[last].Reason == ""; {
		case began && runs:
			r.t.Fatalf("a term begins before the one before has ended: %s", line)
		case began:
			lasts[lease] = len(terms)
			terms = append(terms, Term{Epoch: value(line, "epoch")})
		case ended && (!runs || terms[last].Epoch != value(line, "epoch")):
			r.t.Fatalf("a term ends that does not run: %s", line)
		case ended:
			terms[last].Reason = value(line, "reason")
		}
	}
	return terms
}

var leaseInLog = regexp.MustCompile("/" + LeaseName + `(-\d+)?\b`)

// value returns the value of a key in a log line, unquoted.
func value(line, key string) string {
	_, rest, ok := strings.Cut(line, " "+key+"=")
	if !ok {
		return ""
	}
	var quoted string
	if n, err := fmt.Sscanf(rest, "%q", &quoted); n == 1 && err == nil {
		return quoted
	}
	plain, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	return plain
}
