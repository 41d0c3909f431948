package server

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/regent-project/regent/pkg/controllers/catalog"
)

// BenchmarkAuthorizedUser compares the requests of a user with 100 bindings in their cluster with those of a member of
// system:masters: the same requests, of the one and the other in turns, and both with tokens.
func BenchmarkAuthorizedUser(b *testing.B) {
	cfg := config(b, b.TempDir())
	registry, err := catalog.Registry()
	if err != nil {
		b.Fatal(err)
	}
	cfg.Registry = registry
	r := startReplica(b, cfg, withPeople)
	admin := r.adminIn(b, "root")
	eventually(b, "root has its namespace", func(ctx context.Context) error {
		_, err := admin.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{})
		return err
	})
	for n := range 100 {
		role := "view"
		switch n {
		case 50:
			role = "system:kcp:workspace:access"
		case 99:
			role = "edit"
		}
		if _, err := admin.RbacV1().ClusterRoleBindings().Create(b.Context(), toUser(fmt.Sprintf("b%02d", n), role, "ann"), metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	ann, boss := r.kubeOf(b, "ann", "root"), r.kubeOf(b, "boss", "root")
	get := func(ctx context.Context, as kubernetes.Interface) error {
		_, err := as.CoreV1().ConfigMaps("default").Get(ctx, "c", metav1.GetOptions{})
		return err
	}
	update := func(ctx context.Context, as kubernetes.Interface) error {
		_, err := as.CoreV1().ConfigMaps("default").Patch(ctx, "c", "application/merge-patch+json", fmt.Appendf(nil, `{"data":{"a":"%d"}}`, time.Now().UnixNano()), metav1.PatchOptions{})
		return err
	}
	eventually(b, "the user may write", func(ctx context.Context) error { return update(ctx, ann) })
	for name, do := range map[string]func(context.Context, kubernetes.Interface) error{"get": get, "patch": update} {
		b.Run(name, func(b *testing.B) { compare(b, boss, ann, do) })
	}
	if err := r.stop(b); err != nil {
		b.Error(err)
	}
}

// compare reports how fast a user's requests are in relation to an administrator's.
func compare(b *testing.B, boss, ann kubernetes.Interface, do func(context.Context, kubernetes.Interface) error) {
	took := map[kubernetes.Interface][]time.Duration{}
	total := map[kubernetes.Interface]time.Duration{}
	order := []kubernetes.Interface{boss, ann}
	for b.Loop() {
		slices.Reverse(order) // none is always the first
		for _, who := range order {
			begun := time.Now()
			if err := do(b.Context(), who); err != nil {
				b.Fatal(err)
			}
			d := time.Since(begun)
			took[who], total[who] = append(took[who], d), total[who]+d
		}
	}
	p50 := func(of []time.Duration) float64 {
		slices.Sort(of)
		return float64(of[len(of)/2])
	}
	b.ReportMetric(p50(took[boss])/p50(took[ann]), "ratio-p50")
	b.ReportMetric(float64(total[boss])/float64(total[ann]), "ratio-throughput")
}
