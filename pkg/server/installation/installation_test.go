package installation

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/pki"
)

// mustRefuse checks that an error says what is to be done.
func mustRefuse(t *testing.T, err error, says ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("it is not refused; want %q", says)
	}
	for _, want := range says {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAShardThatIsAddedIsKnownByItsMembership(t *testing.T) {
	f := newFakes(t)
	membership, err := f.admin.Add(t.Context(), f.bundle, Addition{Name: "eu1", Replicas: []string{"https://10.0.1.1:6443", "https://10.0.1.2:6443"}, Labels: map[string]string{"region": "eu"}})
	must(t, err)
	authority, err := membership.Authority()
	must(t, err)
	got := f.shards["root"].shard(t, "root", "eu1")
	if got.Annotations[clusters.AuthorityAnnotation] != authority.Fingerprint() || got.Labels["region"] != "eu" || got.Spec.BaseURL != "https://10.0.1.1:6443" {
		t.Errorf("it is %+v", got)
	}
	if urls := clusters.ReplicasOf(got); !slices.Equal(urls, []string{"https://10.0.1.1:6443", "https://10.0.1.2:6443"}) {
		t.Errorf("its replicas are %q", urls)
	}
	if membership.Member != (pki.MemberName{Kind: pki.KindShard, Name: "eu1"}) || membership.Root.Name != "root" || !slices.Equal(membership.Root.URLs, []string{f.shards["root"].url}) {
		t.Errorf("its membership is for %+v, and names %+v", membership.Member, membership.Root)
	}
}

func TestAnAdditionThatWouldTakeSomethingFromOthersIsRefused(t *testing.T) {
	f := newFakes(t, "eu1", "old")
	must(t, f.admin.change(t.Context(), "old", func(s *corev1alpha1.Shard) error {
		metav1.SetMetaDataAnnotation(&s.ObjectMeta, clusters.RemovedAnnotation, "true")
		return nil
	}))
	other, err := pki.Ensure(t.TempDir())
	must(t, err)
	before := f.shards["root"].shard(t, "root", "eu1").Annotations
	at := []string{"https://10.0.1.1:6443"}
	for name, tc := range map[string]struct {
		bundle *pki.Bundle
		add    Addition
		says   []string
	}{
		"a name that is taken":          {f.bundle, Addition{Name: "eu1", Replicas: at}, []string{"there is a shard eu1", "--renew"}},
		"a name that was removed":       {f.bundle, Addition{Name: "old", Replicas: at}, []string{"was removed", "another name"}},
		"the root shard's name":         {f.bundle, Addition{Name: "root", Replicas: at}, []string{"there is a shard root"}},
		"another installation's keys":   {other, Addition{Name: "us1", Replicas: at}, []string{"--pki-directory is another one"}},
		"the same, for a new one":       {other, Addition{Name: "eu1", Renew: true}, []string{"--pki-directory is another one"}},
		"no replica":                    {f.bundle, Addition{Name: "us1"}, []string{"--replica=https://"}},
		"renewal of the root shard":     {f.bundle, Addition{Name: "root", Renew: true}, []string{"root is the root shard"}},
		"renewal of one that was there": {f.bundle, Addition{Name: "old", Renew: true}, []string{"shard old", "removed"}},
		"renewal of one that never was": {f.bundle, Addition{Name: "us1", Renew: true}, []string{"us1", "not found"}},
	} {
		t.Run(name, func(t *testing.T) {
			membership, err := f.admin.Add(t.Context(), tc.bundle, tc.add)
			mustRefuse(t, err, tc.says...)
			if membership != nil && !tc.add.Renew {
				t.Error("a membership is returned all the same")
			}
		})
	}
	if after := f.shards["root"].shard(t, "root", "eu1").Annotations; !maps.Equal(before, after) {
		t.Errorf("eu1 was %v, and is %v", before, after)
	}
}

func TestARenewedMembershipReplacesTheOneBefore(t *testing.T) {
	f := newFakes(t, "eu1")
	before := f.shards["root"].shard(t, "root", "eu1")
	membership, err := f.admin.Add(t.Context(), f.bundle, Addition{Name: "eu1", Renew: true, Labels: map[string]string{"region": "eu"}})
	must(t, err)
	authority, err := membership.Authority()
	must(t, err)
	after := f.shards["root"].shard(t, "root", "eu1")
	if got := after.Annotations[clusters.AuthorityAnnotation]; got != authority.Fingerprint() || got == before.Annotations[clusters.AuthorityAnnotation] {
		t.Errorf("the Shard names %s", got)
	}
	if !slices.Equal(clusters.ReplicasOf(before), clusters.ReplicasOf(after)) {
		t.Error("it has moved")
	}
	if after.Labels["region"] != "eu" {
		t.Errorf("the label that was given is not set: %v", after.Labels)
	}
	list, err := f.admin.List(t.Context())
	must(t, err)
	if fault := list[0].Fault; list[0].Name != "eu1" || !strings.Contains(fault, "a membership that was replaced") {
		t.Errorf("with its old membership it is %+v", list[0])
	}
}

// Whoever else changes the object at the same time loses nothing.
func TestWhatIsSetIsChangedAndNothingElse(t *testing.T) {
	f := newFakes(t, "eu1")
	root := f.shards["root"]
	must(t, f.admin.Set(t.Context(), "eu1", nil, map[string]string{"region": "eu", "disk": "slow"}))
	raced := false
	root.mu.Lock()
	root.before = func(*http.Request) {
		if !raced {
			raced = true
			s := root.shard(t, "root", "eu1")
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, "of", "somebody else")
			root.set(t, "root", s)
		}
	}
	root.mu.Unlock()
	must(t, f.admin.Set(t.Context(), "eu1", []string{"https://b:1", "https://c:1"}, map[string]string{"disk": "", "zone": "a"}))
	got := root.shard(t, "root", "eu1")
	if want := map[string]string{"region": "eu", "zone": "a"}; !maps.Equal(got.Labels, want) {
		t.Errorf("labels %v, want %v", got.Labels, want)
	}
	if urls := clusters.ReplicasOf(got); !slices.Equal(urls, []string{"https://b:1", "https://c:1"}) || got.Annotations["of"] != "somebody else" {
		t.Errorf("replicas %q, annotations %v", urls, got.Annotations)
	}
	must(t, f.admin.Cordon(t.Context(), "eu1", true))
	must(t, f.admin.Cordon(t.Context(), "eu1", true))
	if !clusters.IsCordoned(root.shard(t, "root", "eu1")) {
		t.Error("it is not cordoned")
	}
	must(t, f.admin.Cordon(t.Context(), "eu1", false))
	if clusters.IsCordoned(root.shard(t, "root", "eu1")) {
		t.Error("it is cordoned")
	}
	mustRefuse(t, f.admin.Cordon(t.Context(), "us1", true), "shard us1", "not found")
	mustRefuse(t, f.admin.Set(t.Context(), "us1", nil, map[string]string{"a": "b"}), "shard us1", "not found")
}

func clusterAt(path string, edits ...func(*corev1alpha1.LogicalCluster)) *corev1alpha1.LogicalCluster {
	lc := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster", Annotations: map[string]string{"kcp.io/path": path}}}
	for _, edit := range edits {
		edit(lc)
	}
	return lc
}

func assignedTo(shard, name string) *tenancyv1alpha1.Workspace {
	return &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{clusters.ShardLabel: shard}}}
}

// hang makes a shard answer nothing.
func (f *fakes) hang(name string) {
	shard := f.shards[name]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	shard.instead = func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }
}

func TestAShardIsRemovedOnlyWhenNobodyNeedsIt(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		arrange func(t *testing.T, f *fakes)
		remove  string
		says    []string // nothing: it is removed
	}{
		"it has clusters": {func(t *testing.T, f *fakes) {
			f.shards["eu1"].set(t, "c1", clusterAt("root:a"))
			f.shards["eu1"].set(t, "c2", clusterAt(""))
			f.shards["us1"].set(t, "c3", clusterAt("root:c"))
		}, "eu1", []string{"it still has 2: c2, root:a.", "regent shard drain"}},
		"others have assigned workspaces to it": {func(t *testing.T, f *fakes) {
			f.shards["us1"].set(t, "c3", assignedTo("eu1", "w"))
			f.shards["root"].set(t, "root", assignedTo("us1", "v"))
		}, "eu1", []string{"it still has 1: workspace c3|w."}},
		"another shard does not say": {func(_ *testing.T, f *fakes) { f.hang("us1") }, "eu1", []string{"shard us1 does not say that it knows that eu1 is cordoned"}},
		"another shard does not know yet that it is cordoned": {func(t *testing.T, f *fakes) {
			root := f.shards["root"]
			root.mu.Lock()
			defer root.mu.Unlock()
			root.changed = nil
		}, "eu1", []string{"is cordoned, and may still assign clusters to it"}},
		"it is the root shard": {func(*testing.T, *fakes) {}, "root", []string{"root is the root shard"}},
		"nobody needs it": {func(t *testing.T, f *fakes) {
			f.shards["us1"].set(t, "c3", clusterAt("root:c"))
		}, "eu1", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakes(t, "eu1", "us1")
			tc.arrange(t, f)
			within := time.Minute
			if strings.HasPrefix(name, "another shard does not") { // which it waits for
				within = 10 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			err := f.admin.Remove(ctx, tc.remove)
			after := f.shards["root"].shard(t, "root", tc.remove)
			if tc.says != nil {
				mustRefuse(t, err, tc.says...)
				if clusters.IsRemoved(after) {
					t.Error("it is removed all the same")
				}
				if !clusters.IsCordoned(after) && tc.remove != "root" {
					t.Error("it still takes new clusters")
				}
				return
			}
			must(t, err)
			if !clusters.IsRemoved(after) {
				t.Error("it is not removed")
			}
			mustRefuse(t, f.admin.Cordon(t.Context(), "eu1", false), "removed")
			list, err := f.admin.List(t.Context())
			must(t, err)
			if len(list) != 2 || list[0].Name != "root" || list[1].Name != "us1" {
				t.Errorf("the list is %+v", list)
			}
		})
	}
}

func TestAListTellsOfAllShardsWhoeverDoesNotAnswer(t *testing.T) {
	t.Parallel()
	f := newFakes(t, "eu1", "us1", "za1", "zb1", "zc1")
	home := f.shards["eu1"].shard(t, "system:shards", "eu1")
	home.Status.Capacity = corev1.ResourceList{clusters.CapacityClusters: resource.MustParse("100"), clusters.UsedClusters: resource.MustParse("7")}
	f.shards["eu1"].set(t, "system:shards", home)
	must(t, f.admin.Cordon(t.Context(), "eu1", true))
	f.shards["eu1"].set(t, "system:shards", home)
	f.hang("us1")
	f.shards["za1"].instead = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("<html>"))
	}
	f.shards["zb1"].instead = func(w http.ResponseWriter, req *http.Request) {
		for req.Context().Err() == nil {
			_, _ = w.Write(make([]byte, 1<<10))
			time.Sleep(time.Millisecond)
		}
	}
	must(t, f.admin.Set(t.Context(), "zc1", []string{f.shards["eu1"].url}, nil))
	list, err := f.admin.List(t.Context())
	must(t, err)
	faults := map[string]string{"eu1": "", "root": "", "us1": "deadline exceeded", "za1": "invalid character", "zb1": "deadline exceeded", "zc1": "shard eu1 answers: correct it with regent shard set zc1"}
	for _, s := range list {
		want, ok := faults[s.Name]
		if !ok || !strings.Contains(s.Fault, want) || (s.Fault == "") != (want == "") {
			t.Errorf("%s: %q, want %q", s.Name, s.Fault, want)
		}
		if strings.Contains(s.Fault, "regent.internal") {
			t.Errorf("%s: %q names a host that no operator knows", s.Name, s.Fault)
		}
		delete(faults, s.Name)
		if s.Root != (s.Name == "root") || s.Cordoned != (s.Name == "eu1") {
			t.Errorf("it says %+v", s)
		}
		if s.Name == "eu1" && (s.Clusters != 7 || s.Capacity != 100) {
			t.Errorf("it has %d of %d clusters", s.Clusters, s.Capacity)
		}
	}
	if len(faults) > 0 {
		t.Errorf("the list lacks %v", faults)
	}
}
