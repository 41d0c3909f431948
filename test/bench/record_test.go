package bench

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/server/history"
	"github.com/regent-project/regent/test/e2e/harness"
)

// BenchmarkRecord is BenchmarkFailover of ours alone, with no record of earlier terms and with a full one, in turns:
// what the history costs.
func BenchmarkRecord(b *testing.B) {
	m, began := start(b), time.Now()
	none := row{event: "kill -9", name: "Regent, no record of terms"}
	full := row{event: "kill -9", name: fmt.Sprintf("Regent, a record of %d terms", history.Most)}
	// also of a run that fails
	defer func() { fmt.Printf("\n%s%s%s\n%s.\n%s\n", tableHead, none, full, m.disk(b), closing(began)) }()
	for n := range *records {
		m.record(b, 0)
		none.samples = append(none.samples, ours{}.turn(b, m, syscall.SIGKILL))
		m.record(b, history.Most)
		full.samples = append(full.samples, ours{}.turn(b, m, syscall.SIGKILL))
		progress("%d of %d: %s without, %s with a record", n+1, *records, show(none.samples[n].took), show(full.samples[n].took))
	}
	b.ReportMetric(0, "ns/op")
}

// record makes a record of so many terms in place of the one that there is.
func (m *machine) record(b *testing.B, terms int) {
	at := m.leader.Kube("system:admin").CoreV1().ConfigMaps(metav1.NamespaceSystem)
	if err := at.DeleteCollection(b.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: history.Label + "=" + history.Name}); err != nil {
		b.Fatal(err)
	}
	const perPage = 16 // as package history has it; what it reads shows it
	for page := 0; page*perPage < terms; page++ {
		data := map[string]string{}
		for n := page*perPage + 1; n <= (page+1)*perPage; n++ {
			data[fmt.Sprintf("%010d", n)] = fmt.Sprintf(`{"epoch": %d, "holder": "vm_0123abcd_11111111-2222-3333-4444-%012d", "replica": "vm_0123abcd", "began": "2026-01-01T00:00:00Z", "trigger": "death", `+
				`"phases": {"acquire": 0.00123, "break": 0.00001, "caches": 0.00123, "detect": 0.00123, "first_reconcile": 0.01234, "first_write": 0.01234}, "gapSeconds": 0.01234, `+
				`"before": [{"epoch": %d, "holder": "vm_0123abcd_11111111-2222-3333-4444-%012d", "replica": "vm_0123abcd", "began": "2026-01-01T00:00:00Z", "ended": "2026-01-01T00:00:00Z", "endCause": "death"}]}`, n, n, n-1, n-1)
		}
		if _, err := at.Create(b.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%02d", history.Name, page), Labels: map[string]string{history.Label: history.Name}}, Data: data,
		}, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	harness.Eventually(b, fmt.Sprintf("%d terms are recorded", terms), func() bool {
		read, err := history.Book{Namespace: metav1.NamespaceSystem}.Read(b.Context(), m.leader.Kube("system:admin"))
		return err == nil && len(read) == terms
	})
}
