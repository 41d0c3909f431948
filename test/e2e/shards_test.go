package e2e

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/test/e2e/harness"
)

func TestAShardDoesNotNoticeTheDeathOfAnothersLeader(t *testing.T) {
	t.Parallel() // most of it is waiting
	for name, etcds := range map[string]func(*testing.T) (alpha, beta string){
		"one etcd, two prefixes": func(t *testing.T) (string, string) {
			url := harness.StartEtcd(t).URL
			return url, url
		},
		"two etcds": func(t *testing.T) (string, string) { return harness.StartEtcd(t).URL, harness.StartEtcd(t).URL },
	} {
		t.Run(name, func(t *testing.T) {
			alphaEtcd, betaEtcd := etcds(t)
			alpha, beta := startShard(t, "alpha", alphaEtcd), startShard(t, "beta", betaEtcd)
			user := ask(t, beta.others[0])
			for _, s := range []*twoReplicas{alpha, beta} {
				s.others[0].CreateWorkspace("in-" + s.name)
				s.leader.WaitWorkspace("in-" + s.name)
			}

			before, renewed := beta.leader.Lease(), beta.leader.RenewedAt()
			alpha.leader.Kill()
			survivor := alpha.others[0]
			harness.Eventually(t, "the other replica of alpha leads", survivor.Leads)
			for _, r := range []*harness.Replica{survivor, beta.leader, beta.others[0]} {
				name := "after-" + r.Name()
				r.CreateWorkspace(name)
				r.WaitWorkspace(name)
			}
			harness.Eventually(t, "beta's leader renews", func() bool {
				return beta.leader.RenewedAt().After(renewed.Add(2 * time.Second))
			})
			if after := beta.leader.Lease(); !sameTerm(before, after) {
				t.Errorf("beta's lease has changed hands:\n%+v\n%+v", before.Spec, after.Spec)
			}
			user.mustHaveSucceeded(t)
			for _, r := range append(beta.others, beta.leader) {
				if terms := r.Terms(); len(terms) > 1 || len(terms) == 1 && terms[0].Reason != "" {
					t.Errorf("terms of %s: %v", r.Name(), terms)
				}
			}
			mustList(t, survivor, "after-"+survivor.Name(), "in-alpha")
			mustList(t, beta.leader, "after-beta-0", "after-beta-1", "in-beta")
		})
	}
}

// twoReplicas is a shard of two, one of which leads.
type twoReplicas struct {
	name   string
	leader *harness.Replica
	others []*harness.Replica
}

func startShard(t *testing.T, name, etcd string) *twoReplicas {
	t.Helper()
	shard := harness.NewShard(etcd).Renewed()
	shard.Name, shard.Prefix = name, "/"+name
	// Long enough for the one that nobody touches to keep its lease while four processes and their start share a
	// machine.
	shard.Timings = harness.Default
	s := &twoReplicas{name: name}
	s.leader, s.others = harness.Leader(t, shard.Start(t, name+"-0"), shard.Start(t, name+"-1"))
	s.leader.WaitRoot()
	s.others[0].WaitRoot()
	return s
}

func sameTerm(a, b *coordinationv1.Lease) bool {
	return a.UID == b.UID && harness.Holder(a) == harness.Holder(b) && *a.Spec.LeaseTransitions == *b.Spec.LeaseTransitions
}

// mustList checks which workspaces are in root.
func mustList(t *testing.T, r *harness.Replica, want ...string) {
	t.Helper()
	list, err := r.Dynamic("root").Resource(harness.Workspaces).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, w := range list.Items {
		names = append(names, w.GetName())
	}
	slices.Sort(names)
	if !slices.Equal(names, want) {
		t.Errorf("workspaces of %s: %v, want %v", r.Name(), names, want)
	}
}
