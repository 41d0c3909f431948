package admission_test

import (
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	upstream "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/apis/admission"
)

// configMap has so many bytes of data.
func configMap(bytes int) runtime.Object {
	return &corev1.ConfigMap{Data: map[string]string{"a": strings.Repeat("x", bytes)}}
}

func TestAQuotaRefusesWhatWouldStoreMoreAndNothingElse(t *testing.T) {
	const mib = 1 << 20
	limited := map[string]string{clusters.MaxObjectsAnnotation: "7", clusters.MaxBytesAnnotation: "2Mi"}
	large := workspace(func(w *tenancyv1alpha1.Workspace) {
		w.Annotations = map[string]string{"a": strings.Repeat("x", 2000)}
	})
	for name, c := range map[string]struct {
		defaults       admission.QuotaLimits
		annotations    map[string]string
		cluster        logicalcluster.Name // x7 if empty
		who            user.Info           // tenant if nil
		objects, bytes int64               // stored
		room, others   int64               // what all may store, and what others do
		workspaces     int64               // among the objects
		old, obj       runtime.Object
		subresource    string
		refused        string
	}{
		"no limits":                            {objects: 1e9, bytes: 1e15, obj: configMap(1)},
		"below the number":                     {defaults: admission.QuotaLimits{Objects: 10}, objects: 9, obj: configMap(1)},
		"at the number":                        {defaults: admission.QuotaLimits{Objects: 10}, objects: 10, obj: configMap(1), refused: "stores 10 objects, and may store 10"},
		"an administrator at the number":       {defaults: admission.QuotaLimits{Objects: 10}, who: master, objects: 10, obj: configMap(1), refused: "objects"},
		"the leader at the number":             {defaults: admission.QuotaLimits{Objects: 10}, who: leader, objects: 10, obj: configMap(1)},
		"an update at the number":              {defaults: admission.QuotaLimits{Objects: 10}, objects: 10, old: configMap(1), obj: configMap(2)},
		"a subresource at the number":          {defaults: admission.QuotaLimits{Objects: 10, Bytes: 1}, objects: 10, obj: configMap(1), subresource: "token"},
		"below the bytes":                      {defaults: admission.QuotaLimits{Bytes: mib}, bytes: mib - 2000, obj: configMap(1900)},
		"beyond the bytes":                     {defaults: admission.QuotaLimits{Bytes: mib}, bytes: mib - 2000, obj: configMap(2000), refused: "bytes"},
		"beyond the bytes, in JSON":            {defaults: admission.QuotaLimits{Bytes: mib}, bytes: mib - 2000, obj: large, refused: "bytes"},
		"far from the bytes":                   {defaults: admission.QuotaLimits{Bytes: 100 * mib}, bytes: mib, obj: configMap(2000)},
		"growing beyond the bytes":             {defaults: admission.QuotaLimits{Bytes: mib}, bytes: mib - 10, old: configMap(1000), obj: configMap(1100), refused: "would add 100"},
		"a status that grows beyond the bytes": {defaults: admission.QuotaLimits{Bytes: mib}, bytes: mib - 10, old: configMap(1000), obj: configMap(1100), subresource: "status", refused: "bytes"},
		"shrinking beyond the bytes":           {defaults: admission.QuotaLimits{Bytes: mib}, bytes: 2 * mib, old: configMap(1000), obj: configMap(999)},
		"as large as before, beyond the bytes": {defaults: admission.QuotaLimits{Bytes: mib}, bytes: 2 * mib, old: configMap(1000), obj: configMap(1000)},
		"its own number":                       {defaults: admission.QuotaLimits{Objects: 10}, annotations: limited, objects: 7, obj: configMap(1), refused: "may store 7"},
		"its own bytes":                        {annotations: limited, bytes: 2 * mib, obj: configMap(1), refused: "may store 2097152"},
		"its own number, which is none":        {defaults: admission.QuotaLimits{Objects: 10}, annotations: map[string]string{clusters.MaxObjectsAnnotation: "0"}, objects: 1000, obj: configMap(1)},
		"at the number of workspaces":          {defaults: admission.QuotaLimits{Workspaces: 3}, workspaces: 3, obj: workspace(), refused: "has 3 workspaces, and may have 3"},
		"below the number of workspaces":       {defaults: admission.QuotaLimits{Workspaces: 3}, workspaces: 2, obj: workspace()},
		"others at the number of workspaces":   {defaults: admission.QuotaLimits{Workspaces: 3}, workspaces: 3, obj: configMap(1)},
		"an update at that number":             {defaults: admission.QuotaLimits{Workspaces: 3}, workspaces: 3, old: workspace(), obj: workspace()},
		"its own number of workspaces":         {annotations: map[string]string{clusters.MaxWorkspacesAnnotation: "1"}, workspaces: 1, obj: workspace(), refused: "may have 1"},
		"a number that cannot be read":         {defaults: admission.QuotaLimits{Objects: 10}, annotations: map[string]string{clusters.MaxObjectsAnnotation: "many"}, objects: 10, obj: configMap(1), refused: "may store 10"},
		"room for all":                         {room: 1000 * mib, others: 700 * mib, bytes: 199 * mib, obj: configMap(2000)},
		"more than twice what is left":         {room: 1000 * mib, others: 700 * mib, bytes: 200 * mib, obj: configMap(2000), refused: "room for 104857600 more"},
		"two thirds of the room alone":         {room: 900 * mib, bytes: 600 * mib, obj: configMap(2000), refused: "room for 314572800 more"},
		"a little where there is no room":      {room: 1000 * mib, others: 1100 * mib, bytes: 1000, obj: configMap(2000)},
		"more where there is no room":          {room: 1000 * mib, others: 1100 * mib, bytes: mib, obj: configMap(2000), refused: "room for 0 more"},
		"shrinking where there is no room":     {room: 1000 * mib, others: 1100 * mib, bytes: mib, old: configMap(2000), obj: configMap(1999)},
		"no limit said where there is no room": {room: 1000 * mib, others: 1100 * mib, bytes: mib, annotations: map[string]string{clusters.MaxBytesAnnotation: "0"}, obj: configMap(2000)},
		"its own bytes, and no room":           {room: 1000 * mib, others: 1100 * mib, bytes: mib, annotations: limited, obj: configMap(2000)},
		"limits for all, and no room":          {room: 1000 * mib, others: 1100 * mib, bytes: mib, defaults: admission.QuotaLimits{Bytes: 100 * mib}, obj: configMap(2000)},
		"root where there is no room":          {room: 1000 * mib, others: 1100 * mib, bytes: mib, cluster: clusters.Root, obj: configMap(2000)},
		"the leader where there is no room":    {room: 1000 * mib, others: 1100 * mib, bytes: mib, who: leader, obj: configMap(2000)},
		"root":                                 {defaults: admission.QuotaLimits{Objects: 10}, cluster: clusters.Root, objects: 1000, obj: configMap(1)},
		"root, if it is said":                  {annotations: limited, cluster: clusters.Root, objects: 1000, obj: configMap(1), refused: "may store 7"},
		"a system cluster":                     {defaults: admission.QuotaLimits{Objects: 10}, cluster: clusters.SystemAdmin, objects: 1000, obj: configMap(1)},
		"what carries the limits":              {defaults: admission.QuotaLimits{Objects: 1, Bytes: 1}, who: master, objects: 10, bytes: mib, old: logicalCluster(), obj: logicalCluster(func(l *corev1alpha1.LogicalCluster) { l.Annotations["a"] = "b" })},
	} {
		t.Run(name, func(t *testing.T) {
			if c.cluster == "" {
				c.cluster = "x7"
			}
			if c.who == nil {
				c.who = tenant
			}
			plugin := &admission.Quota{
				Default: c.defaults, Exempt: []string{leader.Name}, Room: func() int64 { return c.room },
				Stored: func(of logicalcluster.Name) (objects, bytes int64) {
					if of == clusters.Wildcard {
						return 0, c.bytes + c.others
					}
					if of != c.cluster {
						t.Errorf("asked for %q", of)
					}
					return c.objects, c.bytes
				},
				Workspaces: func(logicalcluster.Name) int64 { return c.workspaces },
				LogicalCluster: func(logicalcluster.Name) (*corev1alpha1.LogicalCluster, bool) {
					lc := &corev1alpha1.LogicalCluster{}
					lc.Annotations = c.annotations
					return lc, c.annotations != nil
				},
			}
			operation, resource := upstream.Create, corev1.SchemeGroupVersion.WithResource("configmaps")
			if c.old != nil {
				operation = upstream.Update
			}
			switch c.obj.(type) {
			case *corev1alpha1.LogicalCluster:
				resource = corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")
			case *tenancyv1alpha1.Workspace:
				resource = tenancyv1alpha1.SchemeGroupVersion.WithResource("workspaces")
			}
			a := upstream.NewAttributesRecord(c.obj, c.old, resource.GroupVersion().WithKind("Any"), "default", "n", resource, c.subresource, operation, nil, false, c.who)
			err := plugin.Validate(clusters.With(t.Context(), c.cluster), a, nil)
			if c.refused == "" && err != nil || c.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.refused) || !strings.Contains(err.Error(), "delete what is not needed")) {
				t.Errorf("got %v, want %q", err, c.refused)
			}
		})
	}
	if (&admission.Quota{}).Handles(upstream.Delete) {
		t.Error("deletions are judged")
	}
}
