package storage

import (
	"context"
	"errors"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/regent-project/regent/pkg/election/fence"
)

// oracle is an etcd whose every answer has the same header.
type oracle struct {
	clientv3.KV
	cluster  uint64
	revision int64
	err      error
}

func (o *oracle) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: o.cluster, Revision: o.revision}
}

func (o *oracle) Put(context.Context, string, string, ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	return &clientv3.PutResponse{Header: o.header()}, o.err
}

func (o *oracle) Get(context.Context, string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return &clientv3.GetResponse{Header: o.header()}, o.err
}

func (o *oracle) Delete(context.Context, string, ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	return &clientv3.DeleteResponse{Header: o.header()}, o.err
}

func (o *oracle) Txn(context.Context) clientv3.Txn { return oracleTxn{o} }

type oracleTxn struct{ *oracle }

func (t oracleTxn) If(...clientv3.Cmp) clientv3.Txn  { return t }
func (t oracleTxn) Then(...clientv3.Op) clientv3.Txn { return t }
func (t oracleTxn) Else(...clientv3.Op) clientv3.Txn { return t }
func (t oracleTxn) Commit() (*clientv3.TxnResponse, error) {
	return &clientv3.TxnResponse{Header: t.header()}, t.err
}

// Another etcd may have come farther than the one that it replaces: revisions alone do not tell. Any call may be the first to it.
func TestEveryAnswerTellsWhetherEtcdWentBack(t *testing.T) {
	calls := map[string]func(clientv3.KV) error{
		"put":    func(kv clientv3.KV) error { _, err := kv.Put(t.Context(), "k", "v"); return err },
		"get":    func(kv clientv3.KV) error { _, err := kv.Get(t.Context(), "k"); return err },
		"delete": func(kv clientv3.KV) error { _, err := kv.Delete(t.Context(), "k"); return err },
		"txn":    func(kv clientv3.KV) error { _, err := kv.Txn(t.Context()).If().Then().Else().Commit(); return err },
	}
	failed := errors.New("so it fails")
	for name, test := range map[string]struct {
		cluster  uint64
		revision int64
		err      error
		wentBack bool
	}{
		"the same revision":              {cluster: 7, revision: 10},
		"a later one":                    {cluster: 7, revision: 11},
		"an earlier one":                 {cluster: 7, revision: 9, wentBack: true},
		"another cluster, ahead":         {cluster: 8, revision: 11, wentBack: true},
		"another cluster, no further":    {cluster: 8, revision: 10, wentBack: true},
		"an error, which has no history": {cluster: 8, revision: 9, err: failed},
	} {
		for call, do := range calls {
			etcd, times := &oracle{cluster: 7, revision: 10}, 0
			h := &history{KV: etcd, over: make(chan struct{}), onWentBack: func() { times++ }}
			if err := calls["get"](h); err != nil {
				t.Fatal(err)
			}
			etcd.cluster, etcd.revision, etcd.err = test.cluster, test.revision, test.err
			for range 2 {
				if err := do(h); !errors.Is(err, test.err) {
					t.Errorf("%s, by %s: %v", name, call, err)
				}
			}
			if wentBack := errors.Is(h.fault, ErrWentBack); wentBack != test.wentBack || (times == 1) != test.wentBack {
				t.Errorf("%s, by %s: %v, told %d times", name, call, h.fault, times)
			}
			select {
			case <-h.over:
				if !test.wentBack {
					t.Errorf("%s, by %s: it is over", name, call)
				}
			default:
				if test.wentBack {
					t.Errorf("%s, by %s: it goes on", name, call)
				}
			}
		}
	}
}

// Once revisions say nothing nothing that is learnt later is believed either: etcd may go back again.
func TestNothingIsRememberedOfTermsOnceEtcdWentBack(t *testing.T) {
	shown := fence.Token{Cluster: "root", Namespace: "n", Name: "l", UID: "u", Holder: "h", Epoch: 1}
	remembered := newTerms()
	remembered.leases.Store(&leases{prefix: "/core/leases", root: "/registry", term: func(runtime.Object) fence.Token { return shown }})
	lease := &corev1.ConfigMap{}
	lease.ResourceVersion = "5"
	if remembered.learn(lease); remembered.revision(shown) != 5 {
		t.Fatalf("remembers revision %d", remembered.revision(shown))
	}
	lease.ResourceVersion = "4" // late news
	if remembered.learn(lease); remembered.revision(shown) != 5 {
		t.Errorf("remembers revision %d after late news", remembered.revision(shown))
	}
	other := shown
	other.Cluster = logicalcluster.Name("another")
	if revision := remembered.revision(other); revision != 0 {
		t.Errorf("remembers revision %d of a Lease of that name in another cluster", revision)
	}
	remembered.forget()
	if revision := remembered.revision(shown); revision != 0 {
		t.Errorf("remembers revision %d of a history that did not happen", revision)
	}
	lease.ResourceVersion = "6"
	if got := remembered.learn(lease); got != shown || remembered.revision(shown) != 0 {
		t.Errorf("remembers revision %d after that", remembered.revision(shown))
	}
}
