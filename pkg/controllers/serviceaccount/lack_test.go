package serviceaccount

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestANamespaceGetsWhatItLacksAndNothingElse(t *testing.T) {
	now := metav1.Unix(1000, 0)
	living := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	deleted := living.DeepCopy()
	deleted.DeletionTimestamp = &now
	terminating := living.DeepCopy()
	terminating.Status.Phase = corev1.NamespaceTerminating
	published := func(change func(*corev1.ConfigMap)) *corev1.ConfigMap {
		m := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "kube-root-ca.crt", ResourceVersion: "7", Labels: map[string]string{"a": "b"}},
			Data:       map[string]string{"ca.crt": "CA"},
		}
		if change != nil {
			change(m)
		}
		return m
	}
	for name, c := range map[string]struct {
		namespace       *corev1.Namespace
		account         bool
		published       *corev1.ConfigMap
		makes           bool // an account
		creates, writes map[string]string
		removes         bool
	}{
		"nothing":               {namespace: living, account: true, published: published(nil)},
		"both":                  {namespace: living, makes: true, creates: map[string]string{"ca.crt": "CA"}},
		"an account":            {namespace: living, published: published(nil), makes: true},
		"the CA":                {namespace: living, account: true, creates: map[string]string{"ca.crt": "CA"}},
		"another CA":            {namespace: living, account: true, published: published(func(m *corev1.ConfigMap) { m.Data["ca.crt"] = "forged" }), writes: map[string]string{"ca.crt": "CA"}},
		"more than the CA":      {namespace: living, account: true, published: published(func(m *corev1.ConfigMap) { m.Data["more"] = "" }), writes: map[string]string{"ca.crt": "CA"}},
		"no data":               {namespace: living, account: true, published: published(func(m *corev1.ConfigMap) { m.Data = nil }), writes: map[string]string{"ca.crt": "CA"}},
		"bytes":                 {namespace: living, account: true, published: published(func(m *corev1.ConfigMap) { m.BinaryData = map[string][]byte{"b": nil} }), writes: map[string]string{"ca.crt": "CA"}},
		"the CA, being deleted": {namespace: living, account: true, published: published(func(m *corev1.ConfigMap) { m.Data, m.DeletionTimestamp = nil, &now })},
		"another CA, immutable": {
			namespace: living, account: true, removes: true,
			published: published(func(m *corev1.ConfigMap) { m.Data["ca.crt"], m.Immutable = "forged", ptr.To(true) }),
		},
		"nothing, immutable": {namespace: living, account: true, published: published(func(m *corev1.ConfigMap) { m.Immutable = ptr.To(true) })},
		"all, being deleted": {namespace: deleted},
		"all, terminating":   {namespace: terminating},
	} {
		t.Run(name, func(t *testing.T) {
			got := lackOf(c.namespace, c.account, c.published, "CA")
			if (got.account != nil) != c.makes || c.makes && (got.account.Namespace != "n" || got.account.Name != "default") {
				t.Errorf("account %v, want one: %t", got.account, c.makes)
			}
			for what, m := range map[string]struct {
				got  *corev1.ConfigMap
				want map[string]string
			}{"create": {got.create, c.creates}, "update": {got.update, c.writes}} {
				if m.got == nil && m.want == nil {
					continue
				}
				if m.got == nil || m.got.Namespace != "n" || m.got.Name != "kube-root-ca.crt" || len(m.got.BinaryData) > 0 {
					t.Fatalf("%s %v, want %v", what, m.got, m.want)
				}
				if d := cmp.Diff(m.want, m.got.Data); d != "" {
					t.Errorf("%s: %s", what, d)
				}
			}
			if got.update != nil && (got.update.ResourceVersion != "7" || got.update.Labels["a"] != "b") {
				t.Errorf("the update does not say what it was decided on, or takes what is others': %+v", got.update.ObjectMeta)
			}
			if (got.remove != nil) != c.removes {
				t.Errorf("remove %v, want one: %t", got.remove, c.removes)
			}
			if got.any() != (c.removes || c.makes || c.creates != nil || c.writes != nil) {
				t.Errorf("any is %t", got.any())
			}
		})
	}
}
