package admission_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	upstream "k8s.io/apiserver/pkg/admission"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/apis/admission"
	"github.com/regent-project/regent/pkg/server/premise"
)

func TestALogicalClusterIsCreatedOnlyForAWorkspaceThatIsThere(t *testing.T) {
	ws := func(uid, revision string, gone bool) *tenancyv1alpha1.Workspace {
		w := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "w", UID: types.UID(uid), ResourceVersion: revision}}
		if gone {
			w.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}
		return w
	}
	fine, going, another := ws("u1", "7", false), ws("u1", "8", true), ws("u2", "9", false)
	for name, c := range map[string]struct {
		cached, stored *tenancyv1alpha1.Workspace
		elsewhere      bool
		fails          bool // to read storage
		refused        bool
		rests          int64 // on the revision; 0: on nothing
		reads          int
	}{
		"memory has it":                   {cached: fine, rests: 7},
		"memory does not have it yet":     {stored: fine, rests: 7, reads: 1},
		"it is nowhere":                   {refused: true, reads: 1},
		"it is being deleted":             {cached: going, stored: going, refused: true, reads: 1},
		"memory has the one of before":    {cached: another, stored: fine, rests: 7, reads: 1},
		"there is another of its name":    {cached: another, stored: another, refused: true, reads: 1},
		"storage does not answer":         {fails: true, reads: 1},
		"it is another shard's Workspace": {elsewhere: true},
	} {
		reads := 0
		plugin := &admission.ClusterOwner{
			Cached: func(clusters.Key) (*tenancyv1alpha1.Workspace, bool) { return c.cached, c.cached != nil },
			Stored: func(_ context.Context, cluster logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error) {
				if reads++; c.fails {
					return nil, errors.New("no answer")
				}
				if c.stored == nil || cluster != "c1" || name != "w" {
					return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
				}
				return c.stored, nil
			},
		}
		lc := logicalCluster(func(l *corev1alpha1.LogicalCluster) {
			l.Spec.Owner = &corev1alpha1.LogicalClusterOwner{Resource: "workspaces", Cluster: "c1", Name: "w", UID: "u1"}
			if c.elsewhere {
				l.Labels = map[string]string{clusters.OwnerShardLabel: "eu1"}
			}
		})
		ctx := premise.With(t.Context())
		a := upstream.NewAttributesRecord(lc, nil, schema.GroupVersionKind{}, "", "cluster", corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters"), "", upstream.Create, nil, false, leader)
		err := plugin.Validate(ctx, a, nil)
		if c.refused != apierrors.IsConflict(err) || c.fails != apierrors.IsInternalError(err) || !c.refused && !c.fails && err != nil || reads != c.reads {
			t.Errorf("%s: %v, after %d reads", name, err, reads)
		}
		if c.refused && !strings.Contains(err.Error(), "workspace w") {
			t.Errorf("%s: the refusal does not say what has gone: %v", name, err)
		}
		var rests int64
		for _, on := range premise.From(ctx).Conditions() {
			if on.Resource != tenancyv1alpha1.Resource("workspaces") || on.Cluster != "c1" || on.Name != "w" {
				t.Errorf("%s: it rests on %+v", name, on)
			}
			rests = on.Revision
		}
		if rests != c.rests {
			t.Errorf("%s: it rests on revision %d, want %d", name, rests, c.rests)
		}
		if c.cached == fine { // it changes before the transaction
			c.stored = going
			if _, err := premise.From(ctx).DecideAgain(ctx); !apierrors.IsConflict(err) {
				t.Errorf("%s, and is deleted meanwhile: %v", name, err)
			}
		}
	}
}
