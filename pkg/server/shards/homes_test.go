package shards

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/clusters"
)

// witnesses are what the shards of an installation say. Shard here is the one that asks.
type witnesses struct {
	// shards and their parents, by "<shard> has <cluster>": the parent's shard, or empty: the same
	clusters map[string]string
	// the shard to which the Workspace of cluster c1 is assigned, by the shard that says so
	workspaces map[string]string
	down       []string
	removed    []string
	members    error
	confirmed  *notebook
	mu         sync.Mutex
	reads      int
}

func (s *witnesses) LogicalCluster(_ context.Context, shard string, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	s.mu.Lock()
	s.reads++
	s.mu.Unlock()
	if slices.Contains(s.down, shard) {
		return nil, errors.New("it does not answer")
	}
	parent, ok := s.clusters[shard+" has "+cluster.String()]
	if !ok {
		return nil, apierrors.NewNotFound(corev1alpha1.Resource("logicalclusters"), "cluster")
	}
	lc := &corev1alpha1.LogicalCluster{Spec: corev1alpha1.LogicalClusterSpec{Owner: &corev1alpha1.LogicalClusterOwner{Cluster: "parent", Name: "w"}}}
	if parent != "" {
		lc.Labels = map[string]string{clusters.OwnerShardLabel: parent}
	}
	return lc, nil
}

func (s *witnesses) Workspace(_ context.Context, shard string, key clusters.Key) (*tenancyv1alpha1.Workspace, error) {
	to, ok := s.workspaces[shard]
	if !ok || key != (clusters.Key{Cluster: "parent", Name: "w"}) || slices.Contains(s.down, shard) {
		return nil, apierrors.NewNotFound(tenancyv1alpha1.Resource("workspaces"), key.Name)
	}
	return &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{clusters.ShardLabel: to}}, Spec: tenancyv1alpha1.WorkspaceSpec{Cluster: "c1"}}, nil
}

// own is what shard here has.
type own struct{ *witnesses }

func (o own) LogicalCluster(ctx context.Context, cluster logicalcluster.Name) (*corev1alpha1.LogicalCluster, error) {
	return o.witnesses.LogicalCluster(ctx, "here", cluster)
}

func (o own) Workspace(ctx context.Context, cluster logicalcluster.Name, name string) (*tenancyv1alpha1.Workspace, error) {
	return o.witnesses.Workspace(ctx, "here", clusters.Key{Cluster: cluster, Name: name})
}

func (s *witnesses) hears() map[string]bool {
	out := map[string]bool{"a": true, "b": true, "root": true}
	for _, shard := range s.down {
		out[shard] = false
	}
	for _, shard := range s.removed {
		delete(out, shard)
	}
	return out
}

func (s *witnesses) homes() *Homes {
	cfg := HomesConfig{
		Own: "here", Root: "root", Live: s, Here: own{s}, Heard: s.hears,
		Members: func() ([]string, error) { return slices.Sorted(maps.Keys(s.hears())), s.members },
	}
	if s.confirmed != nil {
		cfg.Memory = s.confirmed
	}
	return NewHomes(cfg)
}

// Whether cluster c1 is on shard a.
func TestAShardAloneIsNotBelievedThatItHasACluster(t *testing.T) {
	for name, c := range map[string]struct {
		all  *witnesses
		want string // a part of the error; empty: none
	}{
		"it does not say so":                                    {&witnesses{}, "shard a does not say that it has"},
		"this shard has the cluster":                            {&witnesses{clusters: map[string]string{"here has c1": "", "a has c1": ""}}, "is on shard here"},
		"a third shard has assigned it":                         {&witnesses{clusters: map[string]string{"a has c1": "b"}, workspaces: map[string]string{"b": "a"}}, ""},
		"so it has, and another one is down":                    {&witnesses{clusters: map[string]string{"a has c1": "b"}, workspaces: map[string]string{"b": "a"}, down: []string{"root"}}, ""},
		"this shard has assigned it":                            {&witnesses{clusters: map[string]string{"a has c1": "here"}, workspaces: map[string]string{"here": "a"}, down: []string{"root", "b"}}, ""},
		"it has assigned it to itself":                          {&witnesses{clusters: map[string]string{"a has c1": ""}, workspaces: map[string]string{"a": "a"}}, ""},
		"it has assigned it to itself, and another one has it":  {&witnesses{clusters: map[string]string{"a has c1": "", "b has c1": "root"}, workspaces: map[string]string{"a": "a", "root": "b"}}, "shard b has logical cluster c1, too"},
		"it has assigned it to itself, and another one is down": {&witnesses{clusters: map[string]string{"a has c1": "a"}, workspaces: map[string]string{"a": "a"}, down: []string{"b"}}, "shard b is not heard"},
		"a third shard has assigned it to another one":          {&witnesses{clusters: map[string]string{"a has c1": "root", "b has c1": "root"}, workspaces: map[string]string{"root": "b"}}, "shard b has logical cluster c1, too"},
		"the third shard is down":                               {&witnesses{clusters: map[string]string{"a has c1": "b"}, workspaces: map[string]string{"b": "a"}, down: []string{"b"}}, "shard b is not heard"},
		"who is a member is not known":                          {&witnesses{clusters: map[string]string{"a has c1": ""}, members: errors.New("not read yet")}, "not read yet"},
	} {
		err := c.all.homes().Check(t.Context(), "a", "c1")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestTheRootShardHasClusterRootAndNobodyElse(t *testing.T) {
	s := &witnesses{clusters: map[string]string{"a has root": ""}}
	if err := s.homes().Check(t.Context(), "a", clusters.Root); err == nil {
		t.Error("another shard is believed that it has cluster root")
	}
	if err := s.homes().Check(t.Context(), "root", clusters.Root); err != nil {
		t.Error(err)
	}
}

func TestAHomeIsAskedForOnce(t *testing.T) {
	s := &witnesses{clusters: map[string]string{"a has c1": ""}}
	h := s.homes()
	for range 3 {
		if err := h.Check(t.Context(), "a", "c1"); err != nil {
			t.Fatal(err)
		}
	}
	s.down = []string{"a", "b", "root"} // what is known stays known
	s.clusters["b has c1"] = "b"
	before := s.reads
	if err := h.Check(t.Context(), "a", "c1"); err != nil {
		t.Error(err)
	}
	if err := h.Check(t.Context(), "b", "c1"); err == nil || !strings.Contains(err.Error(), "is on shard a, and not on shard b") {
		t.Errorf("whoever comes later is told %v", err)
	}
	if s.reads != before {
		t.Errorf("%d reads for what is known", s.reads-before)
	}
}

// notebook is a Memory that ends with the test.
type notebook struct {
	homes map[logicalcluster.Name]string
}

func (r *notebook) Home(_ context.Context, cluster logicalcluster.Name) string {
	return r.homes[cluster]
}

func (r *notebook) Remember(_ context.Context, cluster logicalcluster.Name, shard string) {
	r.homes[cluster] = shard
}

// What all shards have confirmed is known to the next process, too: also while one of them is down.
func TestWhatAllHaveConfirmedOutlivesTheProcess(t *testing.T) {
	s := &witnesses{clusters: map[string]string{"a has c1": "", "b has c1": ""}, confirmed: &notebook{map[logicalcluster.Name]string{}}}
	if err := s.homes().Check(t.Context(), "a", "c1"); err == nil || len(s.confirmed.homes) != 0 {
		t.Errorf("two shards have it: %v, remembered %v", err, s.confirmed.homes)
	}
	delete(s.clusters, "b has c1")
	if err := s.homes().Check(t.Context(), "a", "c1"); err != nil {
		t.Fatal(err)
	}
	s.down = []string{"b"}
	if err := s.homes().Check(t.Context(), "a", "c1"); err != nil {
		t.Errorf("the next process, while another shard is down: %v", err)
	}
	s.clusters["root has c1"] = ""
	if err := s.homes().Check(t.Context(), "root", "c1"); err == nil || !strings.Contains(err.Error(), "is on shard a, and not on shard root") {
		t.Errorf("a shard that says so later is told %v", err)
	}
	delete(s.clusters, "a has c1")
	if err := s.homes().Check(t.Context(), "a", "c1"); err == nil {
		t.Error("it is taken for the home of what it does not have")
	}
}

// atA returns the homes of a process that knows that cluster c1 is on shard a, or of the next one, which has that from
// the memory of all.
func atA(t *testing.T, next bool) (*witnesses, *Homes) {
	t.Helper()
	s := &witnesses{clusters: map[string]string{"a has c1": ""}}
	if next {
		s.confirmed = &notebook{map[logicalcluster.Name]string{}}
	}
	h := s.homes()
	if err := h.Check(t.Context(), "a", "c1"); err != nil {
		t.Fatal(err)
	}
	if next {
		h = s.homes()
	}
	return s, h
}

// A cluster that was deleted may be taken in by another shard. Whoever says that it has the cluster is believed once
// the shard that had it says that it does not, and all others do.
func TestAClusterThatComesBackOnAnotherShardIsConfirmedAnew(t *testing.T) {
	for name, memory := range map[string]bool{"in this process": false, "in the next one": true} {
		t.Run(name, func(t *testing.T) {
			s, h := atA(t, memory)
			s.clusters["b has c1"] = "root"
			if !memory { // shard root confirms what shard b says, which they could have agreed on
				s.workspaces = map[string]string{"root": "b"}
			}
			for what, befall := range map[string]func() (after func()){
				"the home has it": func() func() { return func() {} },
				"the home is down": func() func() {
					delete(s.clusters, "a has c1")
					s.down = []string{"a"}
					return func() { s.down, s.clusters["a has c1"] = nil, "" }
				},
			} {
				after := befall()
				if err := h.Check(t.Context(), "b", "c1"); err == nil {
					t.Errorf("%s: another one is believed", what)
				}
				after()
			}
			delete(s.clusters, "a has c1")
			if err := h.Check(t.Context(), "b", "c1"); err != nil {
				t.Errorf("it has come back: %v", err)
			}
			if err := h.Check(t.Context(), "a", "c1"); err == nil {
				t.Error("it is on two shards")
			}
		})
	}
}

// A shard is emptied, and removed. What it had is where it has moved to, though it cannot say so any more.
func TestWhatARemovedShardHadIsElsewhere(t *testing.T) {
	for name, memory := range map[string]bool{"in this process": false, "in the next one": true} {
		t.Run(name, func(t *testing.T) {
			s, h := atA(t, memory)
			if at, _, err := h.Find(t.Context(), logicalcluster.NewPath("c1")); at != "a" || err != nil {
				t.Fatalf("it is on %q: %v", at, err)
			}
			delete(s.clusters, "a has c1")
			s.clusters["b has c1"], s.removed = "", []string{"a"}
			if at, _, err := h.Find(t.Context(), logicalcluster.NewPath("c1")); at != "b" || err != nil {
				t.Errorf("it is found on %q: %v", at, err)
			}
			if err := h.Check(t.Context(), "b", "c1"); err != nil {
				t.Errorf("its home is not believed: %v", err)
			}
		})
	}
}
