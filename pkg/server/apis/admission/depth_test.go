package admission_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	"github.com/kcp-dev/sdk/apis/core"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	upstream "k8s.io/apiserver/pkg/admission"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/apis/admission"
)

func TestWorkspacesAreNoDeeperThanTheyMay(t *testing.T) {
	for name, c := range map[string]struct {
		max     int
		in      logicalcluster.Name
		path    string // of the LogicalCluster
		obj     runtime.Object
		refused string
	}{
		"in root":                         {max: 1, in: clusters.Root, path: "root"},
		"at the first level, with one":    {max: 1, in: "x7", path: "root:a", refused: "root:a is 1 workspaces below root"},
		"at the first level, with two":    {max: 2, in: "x7", path: "root:a"},
		"at the second level, with two":   {max: 2, in: "x7", path: "root:a:b", refused: "--max-workspace-depth=2"},
		"deeper than the limit":           {max: 2, in: "x7", path: "root:a:b:c", refused: "--max-workspace-depth=2"},
		"something else":                  {max: 1, in: "x7", path: "root:a", obj: configMap(1)},
		"in a cluster without a path":     {max: 9, in: "x7", refused: "has no path"},
		"in a system cluster":             {max: 1, in: clusters.SystemAdmin},
		"in a cluster that is not stored": {max: 9, in: "none", path: "root:a", refused: "cannot tell"},
	} {
		t.Run(name, func(t *testing.T) {
			plugin := &admission.Depth{Max: c.max, LogicalCluster: func(_ context.Context, of logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
				if of == "none" {
					return nil, errors.New("gone")
				}
				return logicalCluster(func(l *corev1alpha1.LogicalCluster) {
					l.Annotations = map[string]string{core.LogicalClusterPathAnnotationKey: c.path}
				}).(*corev1alpha1.LogicalCluster), nil
			}}
			resource := tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces")
			if c.obj == nil {
				c.obj = workspace()
			} else {
				resource = corev1.SchemeGroupVersion.WithResource("configmaps")
			}
			a := upstream.NewAttributesRecord(c.obj, nil, resource.GroupVersion().WithKind("Any"), "", "n", resource, "", upstream.Create, nil, false, tenant)
			err := plugin.Validate(clusters.With(t.Context(), c.in), a, nil)
			if (c.refused == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), c.refused) || c.in != "none" && !apierrors.IsForbidden(err)) {
				t.Errorf("got %v, want %q", err, c.refused)
			}
		})
	}
	if (&admission.Depth{}).Handles(upstream.Create) || !(&admission.Depth{Max: 1}).Handles(upstream.Create) || (&admission.Depth{Max: 1}).Handles(upstream.Update) {
		t.Error("only creations are judged, and only with a limit")
	}
}
