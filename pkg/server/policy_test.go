package server

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/access"
)

// A read of ten seconds begins, the policy is written, and requests come: they must not be answered by that read, and need one more in all.
func TestARequestIsNotJudgedByAReadThatBeganBeforeItCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := &access.Snapshot{}, &access.Snapshot{}
		var stored atomic.Pointer[access.Snapshot]
		var reads atomic.Int32
		stored.Store(before)
		p := &policies{
			logicalClusters: clusters.NewInformer[*corev1alpha1.LogicalCluster](nil, nil),
			stored: func(context.Context, logicalcluster.Name) (access.Policy, error) {
				reads.Add(1)
				read := stored.Load()
				time.Sleep(10 * time.Second)
				return read, nil
			},
		}
		ask := func() <-chan access.Policy {
			answer := make(chan access.Policy, 1)
			go func() {
				policy, err := p.fresh(t.Context(), "x7")
				if err != nil {
					t.Error(err)
				}
				answer <- policy
			}()
			return answer
		}
		early := ask()
		time.Sleep(time.Second)
		stored.Store(after)
		late, later := ask(), ask()
		if <-early != before {
			t.Error("the first request is not answered by its own read")
		}
		if <-late != after || <-later != after {
			t.Error("a request does not see what was written before it came")
		}
		if n := reads.Load(); n != 2 {
			t.Errorf("%d reads, want 2: requests share them", n)
		}
	})
}
