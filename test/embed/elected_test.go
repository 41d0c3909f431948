package embed

import (
	"context"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/sample-apiserver/pkg/apis/wardle/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/regent-project/regent/pkg/election"
	"github.com/regent-project/regent/pkg/election/etcdfence"
	"github.com/regent-project/regent/pkg/election/fence"
)

var _ election.LeaseClient = (*etcdfence.LeaseClient)(nil)

func fischer() *v1alpha1.Fischer {
	return &v1alpha1.Fischer{ObjectMeta: metav1.ObjectMeta{GenerateName: "f-"}}
}

// cleared has the Lease held by nobody.
func cleared(s *coordinationv1.LeaseSpec) { s.HolderIdentity = ptr.To("") }

// An aggregated server elects by a Lease in its own etcd, and its leaders' writes are held to it: by turns, each in
// terms of its own.
func TestAnElectionByALeaseInTheServersOwnEtcd(t *testing.T) {
	w := newWorld(t)
	type report struct {
		token fence.Token
		err   error
	}
	terms := make(chan report)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	electors := make([]*election.Elector, 2)
	for n := range electors {
		cfg := election.DefaultConfig()
		cfg.Namespace, cfg.Name, cfg.Client, cfg.Fenced = "default", "leader", w.leases, true
		cfg.LeaseDuration, cfg.RenewDeadline, cfg.RetryPeriod = 3*time.Second, 2*time.Second, 300*time.Millisecond
		var err error
		if electors[n], err = election.New(cfg); err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			_ = electors[n].Run(ctx, func(ctx context.Context, term election.Term) error {
				_, err := w.as(term.Token()).WardleV1alpha1().Fischers().Create(ctx, fischer(), metav1.CreateOptions{})
				select {
				case terms <- report{term.Token(), err}:
				case <-ctx.Done():
					return nil
				}
				<-ctx.Done()
				return nil
			})
		})
	}
	var last fence.Token
	for n := range 4 {
		now := <-terms
		if now.err != nil || now.token.Epoch <= last.Epoch {
			t.Errorf("term %d: %v after %v: %v", n, now.token, last, now.err)
		}
		if !last.IsZero() {
			if _, err := w.as(last).WardleV1alpha1().Fischers().Create(t.Context(), fischer(), metav1.CreateOptions{}); !fence.IsFenced(err) {
				t.Errorf("a write of the term before: %v", err)
			}
		}
		last = now.token
		w.edit(cleared)
	}
	cancel()
	running.Wait()
}
