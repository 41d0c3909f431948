package installation

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/apis/conditions/v1alpha1"
	"github.com/kcp-dev/sdk/apis/third_party/conditions/util/conditions"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/regent-project/regent/pkg/clusters"
)

// orphan is the cluster of Workspace c1|w, which shard us1 has lost.
func orphan(lc *corev1alpha1.LogicalCluster) {
	lc.UID, lc.Finalizers = "its-uid", []string{clusters.ContentFinalizer}
	lc.Labels = map[string]string{clusters.OwnerShardLabel: "us1"}
	lc.Annotations[tenancyv1alpha1.LogicalClusterTypeAnnotationKey] = "root:org:team"
	lc.Annotations[tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey] = `{"username":"ann"}`
	lc.Spec.Owner = &corev1alpha1.LogicalClusterOwner{Resource: "workspaces", Cluster: "c1", Name: "w", UID: "lost"}
	conditions.Set(lc, &v1alpha1.Condition{Type: clusters.ConditionOrphaned, Status: corev1.ConditionTrue})
}

func workspaceOf(cluster string, adopts string) *tenancyv1alpha1.Workspace {
	ws := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "w"}, Spec: tenancyv1alpha1.WorkspaceSpec{Cluster: cluster}}
	if adopts != "" {
		ws.Annotations = map[string]string{clusters.AdoptAnnotation: adopts}
	}
	return ws
}

// newOrphan starts three shards. Shard eu1 has an orphan, x7, of Workspace c1|w of us1.
func newOrphan(t *testing.T) *fakes {
	f := newFakes(t, "eu1", "us1")
	f.shards["us1"].set(t, "c1", clusterAt("root:c"))
	f.shards["eu1"].set(t, "x7", clusterAt("root:c:w", orphan))
	f.shards["eu1"].set(t, "x8", clusterAt("root:d", func(lc *corev1alpha1.LogicalCluster) { lc.Labels = map[string]string{clusters.OwnerShardLabel: "us1"} }))
	return f
}

// lead has the leaders of us1 and eu1 do what they do when a Workspace adopts x7.
func (f *fakes) lead() {
	us1, eu1 := f.shards["us1"], f.shards["eu1"]
	us1.mu.Lock()
	defer us1.mu.Unlock()
	us1.changed = func(obj *unstructured.Unstructured) {
		if obj.GetAnnotations()[clusters.AdoptAnnotation] == "eu1/x7" {
			eu1.set(f.T, "x7", clusterAt("root:c:w", orphan, func(lc *corev1alpha1.LogicalCluster) { conditions.Delete(lc, clusters.ConditionOrphaned) }))
		}
	}
}

func TestOrphansAreListedWhoeverDoesNotAnswer(t *testing.T) {
	f := newOrphan(t)
	f.shards["us1"].instead = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "down", http.StatusInternalServerError) }
	got, err := f.admin.Orphans(t.Context())
	mustRefuse(t, err, "shard us1 does not say which of its clusters are orphans")
	if len(got) != 1 || got[0].Shard != "eu1" || got[0].Cluster != "x7" || got[0].Path != "root:c:w" || got[0].Workspace != "c1|w" || got[0].Owner != "us1" {
		t.Errorf("orphans %+v", got)
	}
}

func TestNoShardWaitsForAnotherOneToTellItsOrphans(t *testing.T) {
	f := newOrphan(t)
	asked := make(chan struct{})
	f.shards["eu1"].instead = func(w http.ResponseWriter, req *http.Request) {
		select {
		case <-asked:
		case <-req.Context().Done():
		}
		http.Error(w, "down", http.StatusInternalServerError)
	}
	tell := sync.OnceFunc(func() { close(asked) })
	f.shards["us1"].instead = func(w http.ResponseWriter, _ *http.Request) {
		tell()
		http.Error(w, "down", http.StatusInternalServerError)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got, err := f.admin.Orphans(ctx)
	mustRefuse(t, err, "shard eu1 does not say", "shard us1 does not say")
	if errors.Is(err, context.DeadlineExceeded) {
		t.Error("us1 was asked after eu1 had answered")
	}
	if got == nil {
		t.Error("nil, though the shards are known")
	}
}

func TestAnAdoptedOrphanHasAWorkspaceLikeTheOneThatItHasLost(t *testing.T) {
	f := newOrphan(t)
	f.lead()
	o, err := f.admin.Adopt(t.Context(), "x7", "")
	must(t, err)
	if o.Shard != "eu1" || o.Workspace != "c1|w" {
		t.Errorf("adopted: %+v", o)
	}
	ws := &tenancyv1alpha1.Workspace{}
	if !f.shards["us1"].get(t, "c1", "tenancy.kcp.io", "workspaces", "w", ws) {
		t.Fatal("there is no Workspace")
	}
	if ws.Annotations[clusters.AdoptAnnotation] != "eu1/x7" || ws.Annotations[tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey] != `{"username":"ann"}` {
		t.Errorf("annotations %v", ws.Annotations)
	}
	if typ := ws.Spec.Type; typ == nil || typ.Path != "root:org" || typ.Name != "team" || ws.Spec.Cluster != "" {
		t.Errorf("spec %+v", ws.Spec)
	}
	mustRefuse(t, justErr(f.admin.Adopt(t.Context(), "x7", "")), "x7 is no orphan")
}

func justErr(_ Orphan, err error) error { return err }

func TestAnAdoptionThatWasCutShortGoesOn(t *testing.T) {
	t.Parallel()
	f := newOrphan(t)
	// It is an orphan when the command looks for it, and when it looks whether it is one: whatever reads it then
	// waits for the adoption.
	const waiting = 3
	each := func(read func(n int64)) *atomic.Int64 {
		var reads atomic.Int64
		f.shards["eu1"].mu.Lock() // a request that was given up may still be under way
		defer f.shards["eu1"].mu.Unlock()
		f.shards["eu1"].reading = func() { read(reads.Add(1)) }
		return &reads
	}
	cutShort := func() error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		each(func(n int64) {
			if n == waiting+2 {
				cancel()
			}
		})
		return justErr(f.admin.Adopt(ctx, "x7", ""))
	}
	mustRefuse(t, cutShort(), "is there, and has not adopted logical cluster x7 yet", "run this command again")
	ws := workspaceOf("", "eu1/x7")
	conditions.MarkFalse(ws, tenancyv1alpha1.WorkspaceScheduled, "Unschedulable", v1alpha1.ConditionSeverityError, "that shard is not heard")
	f.shards["us1"].set(t, "c1", ws)
	mustRefuse(t, cutShort(), "(that shard is not heard)")
	reads := each(func(n int64) {
		if n == waiting {
			f.shards["eu1"].set(t, "x7", clusterAt("root:c:w"))
		}
	})
	must(t, justErr(f.admin.Adopt(t.Context(), "x7", "eu1")))
	if reads.Load() < waiting {
		t.Error("it does not wait until the cluster is adopted")
	}
}

// Whatever is decided about an orphan is decided by what its shards say now.
func TestWhatIsNoOrphanIsNeitherAdoptedNorDeleted(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		arrange        func(t *testing.T, f *fakes)
		cluster, shard string
		adopt, delete  string // what the refusal says; empty: it is done
	}{
		"an orphan":                   {func(*testing.T, *fakes) {}, "x7", "", "", ""},
		"an orphan, on its shard":     {func(*testing.T, *fakes) {}, "x7", "eu1", "", ""},
		"an orphan, on another shard": {func(*testing.T, *fakes) {}, "x7", "us1", "x7 is no orphan", "x7 is no orphan"},
		"none":                        {func(*testing.T, *fakes) {}, "x8", "", "x8 is no orphan", "x8 is no orphan"},
		"unknown":                     {func(*testing.T, *fakes) {}, "x9", "", "regent shard orphans lists those that are", "regent shard orphans lists those that are"},
		"it is being deleted": {func(t *testing.T, f *fakes) {
			f.shards["eu1"].set(t, "x7", clusterAt("root:c:w", orphan, func(lc *corev1alpha1.LogicalCluster) { now := metav1.Now(); lc.DeletionTimestamp = &now }))
		}, "x7", "", "is being deleted", "is being deleted"},
		"two shards have it": {func(t *testing.T, f *fakes) {
			f.shards["us1"].set(t, "x7", clusterAt("root:c:w", orphan))
		}, "x7", "", "give --shard", "give --shard"},
		"its Workspace is back": {func(t *testing.T, f *fakes) {
			f.shards["us1"].set(t, "c1", workspaceOf("x7", ""))
		}, "x7", "", "has its Workspace c1|w of shard us1 again", "has a Workspace again"},
		"another has its name": {func(t *testing.T, f *fakes) {
			f.shards["us1"].set(t, "c1", workspaceOf("x5", ""))
		}, "x7", "", "there is another Workspace c1|w on shard us1", ""},
		"another has its name, and adopts": {func(t *testing.T, f *fakes) {
			f.shards["us1"].set(t, "c1", workspaceOf("", "eu1/x8"))
		}, "x7", "", "there is another Workspace c1|w", ""},
		"it is being adopted": {func(t *testing.T, f *fakes) {
			f.shards["us1"].set(t, "c1", workspaceOf("", "eu1/x7"))
		}, "x7", "", "has not adopted", "has a Workspace again"},
		"its parent has gone": {func(t *testing.T, f *fakes) {
			us1 := f.shards["us1"]
			us1.mu.Lock()
			defer us1.mu.Unlock()
			delete(us1.objects, pathOfObject("c1", "core.kcp.io", "logicalclusters", "cluster"))
		}, "x7", "", "logical cluster c1, which had the Workspace, is on shard us1 no longer", ""},
		"its parent is being deleted": {func(t *testing.T, f *fakes) {
			f.shards["us1"].set(t, "c1", clusterAt("root:c", func(lc *corev1alpha1.LogicalCluster) { now := metav1.Now(); lc.DeletionTimestamp = &now }))
		}, "x7", "", "is on shard us1 no longer", ""},
		"the Workspace's shard does not say": {func(_ *testing.T, f *fakes) {
			f.shards["us1"].instead = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "down", http.StatusInternalServerError) }
		}, "x7", "", "shard us1 does not say whether Workspace c1|w is back", "shard us1 does not say whether Workspace c1|w is back"},
		"the Workspace's shard was removed": {func(t *testing.T, f *fakes) {
			must(t, f.admin.change(t.Context(), "us1", func(s *corev1alpha1.Shard) error {
				metav1.SetMetaDataAnnotation(&s.ObjectMeta, clusters.RemovedAnnotation, "true")
				return nil
			}))
		}, "x7", "", "can only be deleted", ""},
		"it changes meanwhile": {func(t *testing.T, f *fakes) {
			eu1 := f.shards["eu1"]
			eu1.mu.Lock()
			defer eu1.mu.Unlock()
			eu1.before = func(*http.Request) {
				eu1.set(t, "x7", clusterAt("root:c:w", orphan, func(lc *corev1alpha1.LogicalCluster) { conditions.Delete(lc, clusters.ConditionOrphaned) }))
			}
		}, "x7", "", "", "may be no orphan any more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			judge := func(what, want string, act func(context.Context, *fakes) error) *fakes {
				t.Helper()
				f := newOrphan(t)
				tc.arrange(t, f)
				if want == "" {
					f.lead()
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				if want == "" {
					ctx = t.Context()
				}
				if err := act(ctx, f); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %q", what, err, want)
				}
				return f
			}
			judge("adopt", tc.adopt, func(ctx context.Context, f *fakes) error { return justErr(f.admin.Adopt(ctx, tc.cluster, tc.shard)) })
			f := judge("delete", tc.delete, func(ctx context.Context, f *fakes) error {
				return justErr(f.admin.DeleteOrphan(ctx, tc.cluster, tc.shard))
			})
			lc := &corev1alpha1.LogicalCluster{}
			if !f.shards["eu1"].get(t, "x7", "core.kcp.io", "logicalclusters", "cluster", lc) {
				t.Fatal("the cluster has gone before its content")
			}
			if going := lc.DeletionTimestamp != nil; going != (tc.delete == "" || name == "it is being deleted") {
				t.Errorf("it is being deleted: %t", going)
			}
		})
	}
}
