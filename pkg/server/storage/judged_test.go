package storage

import (
	"context"
	"errors"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
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

// Another etcd may have come farther than the one that it replaces: revisions alone do not tell. Any call may be the
// first to it.
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
