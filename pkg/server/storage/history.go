package storage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// ErrWentBack says that an etcd was restored from a backup, or replaced, while the server was running.
var ErrWentBack = errors.New("etcd has gone back: it was restored from a backup or replaced by another; " +
	"this process has cached objects that do not exist in it: restart every replica of the shard")

// history checks that etcd's revisions only grow. Calls are linearizable, so an answer is never older than one that
// came before the call was made. history learns only from answers: a write that is the first call to another etcd may
// be made. Streamed lists are not checked. Health checks make other calls all the time.
type history struct {
	clientv3.KV
	revision atomic.Int64
	cluster  atomic.Uint64

	once sync.Once
	// over is closed at the first answer of another history. fault is set, and onWentBack called, before that.
	over       chan struct{}
	fault      error
	onWentBack func()
}

func (h *history) wentBack(fault error) {
	h.once.Do(func() {
		h.onWentBack()
		h.fault = fault
		close(h.over)
	})
}

// begin is called before a call, judge with its answer.
func (h *history) begin() int64 { return h.revision.Load() }

func (h *history) judge(before int64, header *pb.ResponseHeader) {
	if header == nil {
		return
	}
	h.see(header.Revision)
	h.cluster.CompareAndSwap(0, header.ClusterId)
	switch cluster := h.cluster.Load(); {
	case header.ClusterId != cluster:
		h.wentBack(fmt.Errorf("%w (the cluster's id is %x, was %x)", ErrWentBack, header.ClusterId, cluster))
	case header.Revision < before:
		h.wentBack(fmt.Errorf("%w (it is at revision %d, was at %d)", ErrWentBack, header.Revision, before))
	}
}

// see records a revision that etcd has had.
func (h *history) see(revision int64) {
	for seen := h.revision.Load(); revision > seen; seen = h.revision.Load() {
		if h.revision.CompareAndSwap(seen, revision) {
			return
		}
	}
}

// seeing is a versioner that records the revision of each object that is read. A standby asks etcd little and learns
// most from its watches.
type seeing struct {
	storage.APIObjectVersioner
	history *history
}

// UpdateObject implements storage.Versioner.
func (s seeing) UpdateObject(obj runtime.Object, revision uint64) error {
	s.history.see(int64(revision))
	return s.APIObjectVersioner.UpdateObject(obj, revision)
}

func (h *history) Put(ctx context.Context, key, val string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	before := h.begin()
	resp, err := h.KV.Put(ctx, key, val, opts...)
	if err == nil {
		h.judge(before, resp.Header)
	}
	return resp, err
}

func (h *history) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	before := h.begin()
	resp, err := h.KV.Get(ctx, key, opts...)
	if err == nil {
		h.judge(before, resp.Header)
	}
	return resp, err
}

func (h *history) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	before := h.begin()
	resp, err := h.KV.Delete(ctx, key, opts...)
	if err == nil {
		h.judge(before, resp.Header)
	}
	return resp, err
}

func (h *history) Txn(ctx context.Context) clientv3.Txn {
	return &judgedTxn{Txn: h.KV.Txn(ctx), history: h}
}

// judgedTxn is a transaction whose answer is checked by history.
type judgedTxn struct {
	clientv3.Txn
	history *history
}

func (t *judgedTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	t.Txn = t.Txn.If(cs...)
	return t
}

func (t *judgedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.Then(ops...)
	return t
}

func (t *judgedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.Else(ops...)
	return t
}

func (t *judgedTxn) Commit() (*clientv3.TxnResponse, error) {
	before := t.history.begin()
	resp, err := t.Txn.Commit()
	if err == nil {
		t.history.judge(before, resp.Header)
	}
	return resp, err
}

var _ clientv3.KV = (*history)(nil)
