package admission_test

import (
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	upstream "k8s.io/apiserver/pkg/admission"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/apis/admission"
)

func TestAClusterHasNoMoreAggregatedRolesThanItMay(t *testing.T) {
	plain, aggregated := &rbacv1.ClusterRole{}, &rbacv1.ClusterRole{AggregationRule: &rbacv1.AggregationRule{}}
	for name, c := range map[string]struct {
		has      int
		old, obj runtime.Object
		refused  bool
	}{
		"one more":                  {has: 49, obj: aggregated},
		"one too many":              {has: 50, obj: aggregated, refused: true},
		"one that becomes one":      {has: 50, old: plain, obj: aggregated, refused: true},
		"one that is one":           {has: 50, old: aggregated, obj: aggregated},
		"one that is one no longer": {has: 50, old: aggregated, obj: plain},
		"another role":              {has: 50, obj: plain},
		"something else":            {has: 50, obj: configMap(1)},
	} {
		t.Run(name, func(t *testing.T) {
			operation := upstream.Create
			if c.old != nil {
				operation = upstream.Update
			}
			gvr := rbacv1.SchemeGroupVersion.WithResource("clusterroles")
			a := upstream.NewAttributesRecord(c.obj, c.old, gvr.GroupVersion().WithKind("ClusterRole"), "", "n", gvr, "", operation, nil, false, tenant)
			err := (&admission.Aggregated{Count: func(logicalcluster.Name) int { return c.has }}).Validate(clusters.With(t.Context(), "x7"), a, nil)
			if apierrors.IsForbidden(err) != c.refused || !c.refused && err != nil || c.refused && !strings.Contains(err.Error(), "another selector") {
				t.Errorf("got %v, want refused: %t", err, c.refused)
			}
		})
	}
}
