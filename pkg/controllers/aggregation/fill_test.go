package aggregation

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func roleOf(name string, labels map[string]string, resources ...string) *rbacv1.ClusterRole {
	r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, ResourceVersion: "7"}}
	for _, resource := range resources {
		r.Rules = append(r.Rules, rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{resource}})
	}
	return r
}

// One tenant's roles must not keep the leader busy: 60 roles with 10,000 rules each took hours, compared rule by rule.
func TestWhatAnAggregatedRoleTakesInIsBounded(t *testing.T) {
	x := map[string]string{"x": "1"}
	var all []*rbacv1.ClusterRole
	for n := range 60 {
		var resources []string
		for m := range 10_000 {
			resources = append(resources, fmt.Sprintf("resource-%d-%d", n, m))
		}
		all = append(all, roleOf(fmt.Sprintf("r%02d", n), x, resources...))
	}
	it := roleOf("it", nil)
	it.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: x}}}
	began := time.Now()
	got := filled(it, all)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it takes %v", took)
	}
	if got == nil || got.Size() > most+most/4 || len(got.Rules) < 5000 || got.Rules[0].Resources[0] != "resource-0-0" {
		t.Fatalf("it gets %d rules of %d bytes", len(got.Rules), got.Size())
	}
	if again := filled(got, all); again != nil {
		t.Error("it does not settle")
	}
}

func TestAnAggregatedRoleHasTheRulesOfThoseThatItSelects(t *testing.T) {
	x, y := map[string]string{"x": "1"}, map[string]string{"y": "1"}
	for name, c := range map[string]struct {
		has    []string
		others []*rbacv1.ClusterRole
		want   []string // nil: nothing is written
		writes bool
	}{
		"nothing to take in":      {},
		"one":                     {others: []*rbacv1.ClusterRole{roleOf("a", x, "pods")}, want: []string{"pods"}, writes: true},
		"it has it":               {has: []string{"pods"}, others: []*rbacv1.ClusterRole{roleOf("a", x, "pods")}},
		"by names":                {others: []*rbacv1.ClusterRole{roleOf("b", x, "secrets"), roleOf("a", x, "pods")}, want: []string{"pods", "secrets"}, writes: true},
		"none twice":              {others: []*rbacv1.ClusterRole{roleOf("a", x, "pods"), roleOf("b", x, "pods", "secrets")}, want: []string{"pods", "secrets"}, writes: true},
		"either selector":         {others: []*rbacv1.ClusterRole{roleOf("a", x, "pods"), roleOf("b", y, "secrets")}, want: []string{"pods", "secrets"}, writes: true},
		"none without the labels": {others: []*rbacv1.ClusterRole{roleOf("a", map[string]string{"x": "2"}, "pods"), roleOf("b", nil, "pods")}},
		"what users wrote goes":   {has: []string{"mine"}, others: []*rbacv1.ClusterRole{roleOf("a", x, "pods")}, want: []string{"pods"}, writes: true},
		"what is gone goes":       {has: []string{"pods"}, writes: true},
		"not its own":             {others: []*rbacv1.ClusterRole{roleOf("it", x, "own")}},
	} {
		t.Run(name, func(t *testing.T) {
			it := roleOf("it", x, c.has...)
			it.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: x}, {MatchLabels: y}}}
			got := filled(it, append(c.others, it))
			if (got != nil) != c.writes {
				t.Fatalf("writes %v, want to write: %t", got, c.writes)
			}
			if got == nil {
				return
			}
			if d := cmp.Diff(roleOf("it", x, c.want...).Rules, got.Rules); d != "" {
				t.Error(d)
			}
			if got.ResourceVersion != "7" || got.AggregationRule == nil {
				t.Errorf("the write does not say what it was decided on: %+v", got)
			}
			if again := filled(got, append(c.others, got)); again != nil {
				t.Errorf("it does not settle: %v", again.Rules)
			}
		})
	}
}
