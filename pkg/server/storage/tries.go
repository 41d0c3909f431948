package storage

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The timings of tries. If the first try is not answered, a second one begins after secondTry, and a third one thirdTry
// after that. A try that fails is followed by another after tryAgain, until tryingEnds after the first.
const (
	secondTry  = time.Second
	thirdTry   = 2 * time.Second
	tryAgain   = 100 * time.Millisecond
	tryingEnds = 5 * time.Second
	// lastWord is how long the answers of earlier tries are awaited after a later one has found its condition
	// false. An etcd that is slow for everybody answers within that time. The connection of a hanging member ends
	// earlier: WatchMembers or keepalive closes it.
	lastWord = 15 * time.Second
)

// tries is a KV that sends an unanswered call again. So a hanging member of etcd, or a request that was lost when
// etcd's raft leader died, costs a call only a short stall. etcd's own client waits as long as the caller does, and
// never sends a write twice. Earlier tries go on when a later one begins: an etcd that is slow for everybody answers
// the first one, and gets three requests at most.
//
// A read of one key can always be tried again. So can a transaction whose first write is to a key on condition that the
// key is at a given revision: at most one of its tries is executed, whenever it arrives, because it makes the condition
// of the others false. If a later try fails and an earlier one is never answered, that one may have been executed, or
// somebody else may have changed the key, perhaps even to the same value. Then the error says that the outcome is
// unknown. A creation is different: if the key is deleted again before a late try arrives, that try brings it back. So
// a creation is sent once, and if no answer comes, the key is read.
//
// Ranges are sent once, because long lists take time.
type tries struct {
	clientv3.KV
}

// Get tries a read of one key again.
func (t *tries) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if clientv3.OpGet(key, opts...).RangeBytes() != nil {
		return t.KV.Get(ctx, key, opts...)
	}
	o := try(ctx,
		func(ctx context.Context) (*clientv3.GetResponse, error) { return t.KV.Get(ctx, key, opts...) },
		func(*clientv3.GetResponse) bool { return true })
	return o.answer, o.err
}

func (t *tries) Txn(ctx context.Context) clientv3.Txn { return &triedTxn{kv: t, ctx: ctx} }

// outcome is the result of a call.
type outcome[T any] struct {
	answer T
	err    error // why there is no answer
	doubt  error // why an unanswered try may have been executed, or may be executed later; nil: there is none
}

// attempts are the tries of one call that are in flight.
type attempts[T any] struct {
	call    func(context.Context) (T, error)
	settles func(T) bool
	began   time.Time
	// cancel ends what is under way. ended tells of each try that has ended, but a first one that was the only one.
	cancel   context.CancelFunc
	ended    chan attempt[T]
	underway int
}

type attempt[T any] struct {
	answer T
	err    error
}

// try sends a call until an answer settles it, an error comes that another try cannot mend, or the time is up. After an
// answer that does not settle it, try sends nothing more, and returns that answer unless an earlier try gets a better
// one. All tries have ended when try returns.
//
// The first try runs in the caller's goroutine: nearly all are the only one, and a change of goroutines costs more than
// all else that is done here.
func try[T any](ctx context.Context, call func(context.Context) (T, error), settles func(T) bool) outcome[T] {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := &attempts[T]{call: call, settles: settles, began: time.Now(), cancel: cancel, ended: make(chan attempt[T])}
	late := make(chan outcome[T])
	second := time.AfterFunc(secondTry, func() {
		a.underway = 1 // the first
		late <- a.again(ctx, nil, 0)
	})
	answer, err := call(ctx)
	first := attempt[T]{answer, err}
	if !second.Stop() {
		a.ended <- first
		return <-late
	}
	if o, over := a.judge(ctx, first, nil); over {
		return o
	}
	return a.again(ctx, first.err, tryAgain)
}

// again makes the second try after a pause, and others if they are needed. doubt is the first one's, if it has failed.
func (a *attempts[T]) again(ctx context.Context, doubt error, pause time.Duration) outcome[T] {
	defer a.join()
	next, second := time.NewTimer(pause), true
	defer next.Stop()
	for {
		select {
		case <-next.C:
			a.begin(ctx)
			if second {
				next.Reset(thirdTry)
				second = false
			}
		case made := <-a.ended:
			a.underway--
			o, over := a.judge(ctx, made, doubt)
			if over {
				return o
			}
			doubt = made.err
			next.Reset(tryAgain)
		}
	}
}

// judge returns the outcome of the call if the try that was made is the last one. doubt is that about earlier ones.
func (a *attempts[T]) judge(ctx context.Context, made attempt[T], doubt error) (_ outcome[T], over bool) {
	switch {
	case made.err == nil && a.settles(made.answer):
		return outcome[T]{answer: made.answer}, true
	case made.err == nil:
		return a.last(made.answer, doubt), true
	case ctx.Err() != nil, !unanswered(made.err):
		return outcome[T]{err: made.err, doubt: cmp.Or(doubt, a.pending())}, true
	case time.Since(a.began) >= tryingEnds:
		return outcome[T]{err: made.err, doubt: made.err}, true
	}
	return outcome[T]{}, false
}

func (a *attempts[T]) begin(ctx context.Context) {
	a.underway++
	go func() {
		answer, err := a.call(ctx)
		a.ended <- attempt[T]{answer, err}
	}()
}

// join cancels the tries in flight, and waits for them.
func (a *attempts[T]) join() {
	a.cancel()
	for ; a.underway > 0; a.underway-- {
		<-a.ended
	}
}

var errLate = errors.New("etcd has not answered yet")

// pending returns errLate if tries are in flight, nil otherwise.
func (a *attempts[T]) pending() error {
	if a.underway > 0 {
		return errLate
	}
	return nil
}

// last waits for the earlier tries that are in flight after one was refused: one of them may settle the call.
func (a *attempts[T]) last(refused T, doubt error) outcome[T] {
	late := time.NewTimer(lastWord)
	defer late.Stop()
	for a.underway > 0 {
		select {
		case made := <-a.ended:
			a.underway--
			if made.err == nil && a.settles(made.answer) {
				return outcome[T]{answer: made.answer}
			}
			doubt = cmp.Or(doubt, made.err)
		case <-late.C:
			return outcome[T]{answer: refused, doubt: errLate}
		}
	}
	return outcome[T]{answer: refused, doubt: doubt}
}

// unanswered reports whether err leaves open whether etcd has executed, or will execute, the request.
func unanswered(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	var said rpctypes.EtcdError
	if errors.As(err, &said) {
		return said.Code() == codes.Unavailable || said.Code() == codes.DeadlineExceeded
	}
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

// triedTxn is one transaction.
type triedTxn struct {
	kv    *tries
	ctx   context.Context
	conds []clientv3.Cmp
	then  []clientv3.Op
	other []clientv3.Op
}

func (t *triedTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	t.conds = append(t.conds, cs...)
	return t
}

func (t *triedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.then = append(t.then, ops...)
	return t
}

func (t *triedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.other = append(t.other, ops...)
	return t
}

func (t *triedTxn) send(ctx context.Context) (*clientv3.TxnResponse, error) {
	txn := t.kv.KV.Txn(ctx)
	if len(t.conds) > 0 {
		txn = txn.If(t.conds...)
	}
	txn = txn.Then(t.then...)
	if len(t.other) > 0 {
		txn = txn.Else(t.other...)
	}
	return txn.Commit()
}

// Commit sends the transaction as often as is safe.
func (t *triedTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.reads() {
		o := try(t.ctx, t.send, func(*clientv3.TxnResponse) bool { return true })
		return o.answer, o.err
	}
	switch expected, ok := t.expected(); {
	case !ok:
		return t.send(t.ctx)
	case expected == 0:
		return t.create()
	default:
		return t.change(expected)
	}
}

// create sends a creation once. If it is not answered, create reads the key. An equal value proves that the creation
// was made: objects have a uid, so nobody else creates an equal one.
func (t *triedTxn) create() (*clientv3.TxnResponse, error) {
	resp, err := t.send(t.ctx)
	if err == nil || !unanswered(err) || t.ctx.Err() != nil {
		return resp, err
	}
	if made := t.read(); made != nil && bytes.Equal(made.Value, t.then[0].ValueBytes()) {
		return &clientv3.TxnResponse{Header: &pb.ResponseHeader{Revision: made.ModRevision}, Succeeded: true}, nil
	}
	return nil, unknown(err)
}

// change sends an update or deletion of a key that must be at the expected revision.
func (t *triedTxn) change(expected int64) (*clientv3.TxnResponse, error) {
	o := try(t.ctx, t.send, func(resp *clientv3.TxnResponse) bool { return resp.Succeeded })
	if o.doubt == nil || o.err != nil && t.ctx.Err() != nil {
		return o.answer, o.err
	}
	if o.err != nil {
		return nil, unknown(o.err)
	}
	// If the key has not changed, another condition was false, and is for every try.
	if now := t.read(); now != nil && now.ModRevision == expected {
		return o.answer, nil
	}
	return nil, unknown(o.doubt)
}

// reads reports whether the transaction changes nothing.
func (t *triedTxn) reads() bool {
	for _, ops := range [][]clientv3.Op{t.then, t.other} {
		for _, op := range ops {
			if !op.IsGet() {
				return false
			}
		}
	}
	return true
}

// expected returns the revision that the transaction requires of the key that it writes first. ok is false for any
// other transaction.
func (t *triedTxn) expected() (revision int64, ok bool) {
	if len(t.then) == 0 || t.then[0].IsTxn() || t.then[0].RangeBytes() != nil {
		return 0, false
	}
	for i := range t.conds {
		c := t.conds[i].GetCompare()
		if c.Target == pb.Compare_MOD && c.Result == pb.Compare_EQUAL && bytes.Equal(c.Key, t.then[0].KeyBytes()) {
			return c.GetModRevision(), true
		}
	}
	return 0, false
}

// read returns what the key holds, or nil if that cannot be found out.
func (t *triedTxn) read() *mvccpb.KeyValue {
	resp, err := t.kv.Get(t.ctx, string(t.then[0].KeyBytes()))
	if err != nil || len(resp.Kvs) == 0 {
		return nil
	}
	return resp.Kvs[0]
}

// unknownOutcome is the error of a write that may or may not have been made.
type unknownOutcome struct {
	*apierrors.StatusError
	cause error
}

// unknown returns a 504 without Retry-After: with it, clients would send the write again by themselves, and it might be
// made twice.
func unknown(cause error) error {
	message := fmt.Sprintf("etcd did not answer, and the object does not tell whether this write was made: read it, and try again (%v)", cause)
	return &unknownOutcome{apierrors.NewTimeoutError(message, 0), cause}
}

// Unwrap returns the cause.
func (u *unknownOutcome) Unwrap() error { return u.cause }

var _ clientv3.KV = (*tries)(nil)
