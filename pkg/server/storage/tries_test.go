package storage_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"pgregory.net/rapid"

	"github.com/regent-project/regent/pkg/server/storage"
)

// fate is what becomes of one call to a fakeKV.
type fate struct {
	// lost: it is never executed. late: how long after it was sent it is.
	lost bool
	late time.Duration
	// mute: its answer never comes; one that is late has none before answered. err comes in its place, at once.
	mute     bool
	answered time.Duration
	err      error
}

// fakeKV is an etcd of one key. Calls meet their fates in order; those after the last go well.
type fakeKV struct {
	clientv3.KV
	mu       sync.Mutex // of all that follows
	kv       *mvccpb.KeyValue
	revision int64
	fates    []fate
	sent     int
	executed map[string]int // how often a value was put
	then     func()         // called once, when the first call has met its fate
}

// next is the fate of a call.
func (f *fakeKV) next() (first fate, then func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent++
	if len(f.fates) > 0 {
		first, f.fates = f.fates[0], f.fates[1:]
	}
	then, f.then = f.then, nil
	return first, then
}

func (f *fakeKV) meet(ctx context.Context, execute func()) error {
	met, then := f.next()
	locked := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		execute()
	}
	switch {
	case met.lost:
	case met.late > 0:
		time.AfterFunc(met.late, locked)
	default:
		locked()
	}
	if then != nil {
		then()
	}
	switch {
	case met.err != nil:
		return met.err
	case met.answered > 0:
		select {
		case <-time.After(met.answered):
		case <-ctx.Done():
			return ctx.Err()
		}
		f.mu.Lock() // execute has written the answer
		defer f.mu.Unlock()
	case met.mute || met.lost || met.late > 0:
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (f *fakeKV) Get(ctx context.Context, _ string, _ ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	resp := &clientv3.GetResponse{Header: &pb.ResponseHeader{}}
	err := f.meet(ctx, func() {
		resp.Header.Revision = f.revision
		if f.kv != nil {
			resp.Kvs = []*mvccpb.KeyValue{{Value: f.kv.Value, ModRevision: f.kv.ModRevision}}
		}
	})
	return resp, err
}

func (f *fakeKV) Txn(ctx context.Context) clientv3.Txn { return &fakeTxn{f: f, ctx: ctx} }

// put is somebody else's write; an empty value deletes.
func (f *fakeKV) put(value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.set(value)
}

func (f *fakeKV) set(value string) {
	f.revision++
	f.kv = nil
	if value != "" {
		f.kv = &mvccpb.KeyValue{Value: []byte(value), ModRevision: f.revision}
	}
}

func (f *fakeKV) at() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.modified()
}

func (f *fakeKV) modified() int64 {
	if f.kv == nil {
		return 0
	}
	return f.kv.ModRevision
}

type fakeTxn struct {
	f        *fakeKV
	ctx      context.Context
	expected int64
	op       clientv3.Op
}

func (t *fakeTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	t.expected = cs[0].GetCompare().GetModRevision()
	return t
}
func (t *fakeTxn) Then(ops ...clientv3.Op) clientv3.Txn { t.op = ops[0]; return t }
func (t *fakeTxn) Else(...clientv3.Op) clientv3.Txn     { return t }

func (t *fakeTxn) Commit() (*clientv3.TxnResponse, error) {
	resp := &clientv3.TxnResponse{Header: &pb.ResponseHeader{}}
	err := t.f.meet(t.ctx, func() {
		if resp.Succeeded = t.f.modified() == t.expected; resp.Succeeded {
			t.f.set(string(t.op.ValueBytes()))
			t.f.executed[string(t.op.ValueBytes())]++
		}
		resp.Header.Revision = t.f.revision
	})
	return resp, err
}

// write is what the layers above send: a put, or a deletion if value is empty, and what is written beside it.
func write(ctx context.Context, kv clientv3.KV, expected int64, value string, beside ...clientv3.Op) (*clientv3.TxnResponse, error) {
	op := clientv3.OpPut("k", value)
	if value == "" {
		op = clientv3.OpDelete("k")
	}
	return kv.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision("k"), "=", expected)).Then(append([]clientv3.Op{op}, beside...)...).Commit()
}

var (
	lost        = fate{lost: true}
	mute        = fate{mute: true}
	slow        = fate{late: time.Second + 200*time.Millisecond, answered: time.Second + 300*time.Millisecond}
	broken      = fate{err: status.Error(codes.Unavailable, "EOF")}
	unavailable = fate{lost: true, err: status.Error(codes.Unavailable, "transport is closing")}
	noSpace     = fate{lost: true, err: rpctypes.ErrNoSpace}
)

func TestAWriteThatIsNotAnsweredIsTriedAgainAndMadeOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		exists          bool
		value           string
		fates           []fate
		others          string // what somebody else puts after the first try
		succeeds, fails bool   // neither: the outcome is not known
		sent            int
	}{
		"an update that is lost":                                    {exists: true, value: "b", fates: []fate{lost}, succeeds: true, sent: 2},
		"an update that is lost twice":                              {exists: true, value: "b", fates: []fate{lost, lost}, succeeds: true, sent: 3},
		"an update that is made late":                               {exists: true, value: "b", fates: []fate{slow, slow}, succeeds: true, sent: 2},
		"an update that is answered late":                           {exists: true, value: "b", fates: []fate{{answered: 2500 * time.Millisecond}}, succeeds: true, sent: 2},
		"an update whose answer is lost":                            {exists: true, value: "b", fates: []fate{mute}, sent: 3},
		"an update whose connection breaks":                         {exists: true, value: "b", fates: []fate{unavailable}, succeeds: true, sent: 2},
		"an update whose connection breaks, and no space then":      {exists: true, value: "b", fates: []fate{unavailable, noSpace}, sent: 2},
		"an update whose connection breaks once it is made":         {exists: true, value: "b", fates: []fate{broken}, sent: 3},
		"an update that arrives after its second try":               {exists: true, value: "b", fates: []fate{{late: 5 * time.Second}}, succeeds: true, sent: 2},
		"an update whose answer is lost, and that was overwritten":  {exists: true, value: "b", fates: []fate{mute}, others: "c", sent: 3},
		"an update that is lost, and that another makes":            {exists: true, value: "b", fates: []fate{unavailable}, others: "b", sent: 3},
		"an update without space":                                   {exists: true, value: "b", fates: []fate{noSpace}, fails: true, sent: 1},
		"a deletion that is lost":                                   {exists: true, fates: []fate{lost}, succeeds: true, sent: 2},
		"a deletion that is made late":                              {exists: true, fates: []fate{slow, slow}, succeeds: true, sent: 2},
		"a deletion whose answer is lost":                           {exists: true, fates: []fate{mute}, sent: 3},
		"a creation whose answer is lost":                           {value: "b", fates: []fate{broken}, succeeds: true, sent: 2},
		"a creation whose connection breaks may arrive, once":       {value: "b", fates: []fate{unavailable}, sent: 2},
		"a creation whose answer is lost, and that was overwritten": {value: "b", fates: []fate{broken}, others: "c", sent: 2},
	} {
		for with, beside := range map[string][]clientv3.Op{"alone": nil, "and another": {clientv3.OpPut("beside", "x")}} {
			t.Run(name+", "+with, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &fakeKV{fates: tc.fates, executed: map[string]int{}}
					if tc.exists {
						f.put("a")
					}
					expected := f.at()
					if tc.others != "" {
						f.then = func() { f.put(tc.others) }
					}
					resp, err := write(t.Context(), storage.NewTries(f), expected, tc.value, beside...)
					judgeWrite(t, resp, err, tc.succeeds, tc.fails)
					time.Sleep(time.Minute)
					f.mu.Lock()
					defer f.mu.Unlock()
					if f.sent != tc.sent {
						t.Errorf("%d calls, want %d", f.sent, tc.sent)
					}
					if n := f.executed[tc.value]; n > 1 {
						t.Errorf("executed %d times", n)
					}
					if tc.succeeds && resp != nil && resp.Header.Revision != f.revision {
						t.Errorf("revision %d, want %d", resp.Header.Revision, f.revision)
					}
				})
			})
		}
	}
}

func judgeWrite(t *testing.T, resp *clientv3.TxnResponse, err error, succeeds, fails bool) {
	t.Helper()
	switch {
	case succeeds && (err != nil || !resp.Succeeded):
		t.Errorf("answer %+v, %v, want a success", resp, err)
	case fails && (err == nil || apierrors.IsTimeout(err)):
		t.Errorf("answer %+v, %v, want a failure", resp, err)
	case !succeeds && !fails && !apierrors.IsTimeout(err):
		t.Errorf("answer %+v, %v, want that nobody knows", resp, err)
	}
}

func TestAReadThatIsNotAnsweredIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeKV{fates: []fate{mute, lost}}
		began := time.Now()
		if _, err := storage.NewTries(f).Get(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); f.sent != 3 || took != 3*time.Second {
			t.Errorf("%d calls in %v, want 3 in 3s", f.sent, took)
		}
	})
}

// A member that refuses is left for another one soon, and not asked in a tight loop.
func TestATryThatFailsIsFollowedByAnotherShortlyAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeKV{fates: []fate{unavailable, unavailable}}
		began := time.Now()
		if _, err := storage.NewTries(f).Get(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); f.sent != 3 || took != 200*time.Millisecond {
			t.Errorf("%d calls in %v, want 3 in 200ms", f.sent, took)
		}
	})
}

// An etcd that answers everybody late is not asked ever more: the last try waits for as long as the caller does.
func TestASlowEtcdIsAskedThreeTimesAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeKV{fates: []fate{mute, mute, mute, mute, mute}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		_, err := storage.NewTries(f).Get(ctx, "k")
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || f.sent != 3 || took != time.Minute {
			t.Errorf("%d calls in %v: %v; want 3 in 1m", f.sent, took, err)
		}
	})
}

// Without any member the caller is told soon, as ever.
func TestAnEtcdThatIsAwayIsNotWaitedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeKV{executed: map[string]int{}}
		f.put("a")
		for range 1000 {
			f.fates = append(f.fates, unavailable)
		}
		began := time.Now()
		_, err := write(t.Context(), storage.NewTries(f), f.at(), "b")
		if took := time.Since(began); err == nil || took > 15*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// Whatever is lost, late or overtaken: a success is one execution, a failure is none, and nothing is executed twice.
func TestWhateverIsLostOrLateAWriteIsToldAsItIs(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		fates := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) fate {
			return rapid.SampledFrom([]fate{{}, lost, mute, slow, unavailable, noSpace, {err: rpctypes.ErrTimeoutDueToLeaderFail}, {answered: 1500 * time.Millisecond}, {late: 1500 * time.Millisecond}, {late: 10 * time.Second}}).Draw(rt, "fate")
		}), 0, 6).Draw(rt, "fates")
		exists := rapid.Bool().Draw(rt, "exists")
		deletes := exists && rapid.Bool().Draw(rt, "deletes")
		// What others put. They may write the same, but a creation has a uid.
		theirs := []string{"c", "", "b"}
		if !exists {
			theirs[2] = "d"
		}
		others := rapid.SliceOfN(rapid.IntRange(0, 6000), 0, 3).Draw(rt, "others") // ms
		synctest.Test(t, func(t *testing.T) {
			f := &fakeKV{fates: fates, executed: map[string]int{}}
			if exists {
				f.put("a")
			}
			for i, at := range others {
				time.AfterFunc(time.Duration(at)*time.Millisecond, func() { f.put(theirs[i]) })
			}
			value := "b"
			if deletes {
				value = ""
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			resp, err := write(ctx, storage.NewTries(f), f.at(), value)
			time.Sleep(time.Minute)
			f.mu.Lock()
			n := f.executed[value]
			f.mu.Unlock()
			switch {
			case n > 1:
				rt.Errorf("executed %d times", n)
			case err == nil && resp.Succeeded && n != 1:
				rt.Errorf("a success that was executed %d times", n)
			case err == nil && !resp.Succeeded && n != 0:
				rt.Errorf("a failure that was executed")
			case err != nil && !apierrors.IsTimeout(err) && !errors.Is(err, rpctypes.ErrNoSpace) && ctx.Err() == nil:
				rt.Errorf("an error that tells nothing: %v", err)
			case err != nil && !apierrors.IsTimeout(err) && ctx.Err() == nil && n != 0:
				rt.Errorf("an error that tells of no doubt, of what was executed: %v", err)
			}
		})
	})
}

// Clients send what is answered with Retry-After again by themselves: a creation with generateName would be made twice.
func TestAWriteOfUnknownOutcomeIsNotSentAgainByClients(t *testing.T) {
	f := &fakeKV{fates: []fate{unavailable}, executed: map[string]int{}}
	_, err := write(t.Context(), storage.NewTries(f), 0, "b")
	answer := responsewriters.ErrorToAPIStatus(err)
	if answer.Code != http.StatusGatewayTimeout || answer.Details.RetryAfterSeconds != 0 || status.Code(err) != codes.Unavailable {
		t.Errorf("%v is answered with %+v, want 504 and no Retry-After, and the cause", err, answer)
	}
}

// A caller that gives up is not told of a conflict, which would say that nothing was made.
func TestAWriteWhoseCallerGivesUpIsNotToldToHaveFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeKV{fates: []fate{mute, {answered: 500 * time.Millisecond}}, executed: map[string]int{}}
		f.put("a")
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if resp, err := write(ctx, storage.NewTries(f), f.at(), "b"); err == nil {
			t.Errorf("answer %+v, want an error", resp)
		}
	})
}

// A key at the revision that was expected, although the transaction failed: it is the lease that has changed, so the
// write was not made, and no late try of it will be.
func TestAWriteWhoseLeaseHasChangedIsNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeKV{executed: map[string]int{}}
		f.put("a")
		kv := &otherCondition{fakeKV: f}
		resp, err := write(t.Context(), storage.NewTries(kv), f.at(), "b")
		if err != nil || resp.Succeeded {
			t.Errorf("%+v, %v, want a failure", resp, err)
		}
	})
}

// otherCondition answers the first transaction not at all, and the second with a failure, while the key stays as it is.
type otherCondition struct {
	*fakeKV
	tried atomic.Int32
}

func (o *otherCondition) Txn(ctx context.Context) clientv3.Txn {
	return &failingTxn{ctx: ctx, mute: o.tried.Add(1) == 1}
}

type failingTxn struct {
	ctx  context.Context
	mute bool
}

func (t *failingTxn) If(...clientv3.Cmp) clientv3.Txn  { return t }
func (t *failingTxn) Then(...clientv3.Op) clientv3.Txn { return t }
func (t *failingTxn) Else(...clientv3.Op) clientv3.Txn { return t }
func (t *failingTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.mute {
		<-t.ctx.Done()
		return nil, fmt.Errorf("no answer: %w", t.ctx.Err())
	}
	return &clientv3.TxnResponse{Header: &pb.ResponseHeader{Revision: 7}}, nil
}
