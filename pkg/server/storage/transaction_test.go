package storage_test

import (
	"context"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	upstream "k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/election/etcdfence"
	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/storage"
	"github.com/regent-project/regent/test/etcdtest"
)

const besideKey = "/registry/core/secrets/root/beside"

// What is written beside an object is there if and only if the object was written, whoever writes, and whatever happens
// just before.
func TestWhatIsWrittenBesideAnObjectSharesItsFate(t *testing.T) {
	w := newWorld(t, etcdtest.Start(t), false, nil)
	befall := w.beforeNextCommit()
	etcd := w.client.Etcd()
	is := func(key string) bool {
		got, err := etcd.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return len(got.Kvs) > 0
	}
	for happens, c := range map[string]struct {
		do      func()
		leads   bool // a leader's write is refused, a user's is made
		refusal error
	}{
		"nothing":                           {},
		"what is compared changes":          {do: func() { w.touch() }, refusal: storage.ErrConditionUnmet},
		"something comes into a range":      {do: func() { putRaw(t, etcd, "/registry/core/secrets/root/range/1") }, refusal: storage.ErrConditionUnmet},
		"the lease is renewed":              {do: w.renew},
		"another one leads":                 {do: func() { w.take("another") }, leads: true},
		"another one leads, and it changes": {do: func() { w.take("another"); w.touch() }, leads: true, refusal: storage.ErrConditionUnmet},
	} {
		for as, leads := range map[string]bool{"a user": false, "a leader": true} {
			for how, op := range map[string]struct {
				exists bool
				do     func(context.Context) error
			}{"create": {false, w.create}, "update": {true, w.update}, "delete": {true, w.delete}} {
				w.reset(op.exists)
				before := w.stored()
				for _, key := range []string{besideKey, "/registry/core/secrets/root/range/1"} {
					if _, err := etcd.Delete(t.Context(), key); err != nil {
						t.Fatal(err)
					}
				}
				ctx := w.admin
				if leads {
					ctx = w.as(w.take("me"))
				}
				ctx = etcdfence.WithTransaction(ctx, etcdfence.Transaction{
					When: []clientv3.Cmp{
						clientv3.Compare(clientv3.ModRevision(otherKey), "=", w.touch()),
						clientv3.Compare(clientv3.CreateRevision("/registry/core/secrets/root/range/").WithPrefix(), "=", 0),
					},
					Then: []clientv3.Op{clientv3.OpPut(besideKey, "made")},
				})
				*befall = c.do
				err := op.do(ctx)
				*befall = nil
				refused := c.refusal != nil || c.leads && leads
				switch {
				case !refused && err != nil, refused && err == nil:
					t.Errorf("%s, %s by %s: %v", happens, how, as, err)
				case c.leads && leads && !fence.IsFenced(err):
					t.Errorf("%s, %s by %s: %v, want it fenced", happens, how, as, err)
				case refused && !(c.leads && leads) && !errors.Is(err, c.refusal):
					t.Errorf("%s, %s by %s: %v, want %v", happens, how, as, err, c.refusal)
				}
				if is(besideKey) == refused || (w.stored() != before) == refused {
					t.Errorf("%s, %s by %s: beside it something is: %t; the object was %q and is %q; refused: %t", happens, how, as, is(besideKey), before, w.stored(), refused)
				}
			}
		}
	}
	// A write whose object is not as expected makes nothing beside it, and says so as ever.
	w.reset(true)
	beside := etcdfence.WithTransaction(w.admin, etcdfence.Transaction{Then: []clientv3.Op{clientv3.OpPut(besideKey, "made")}})
	if _, err := etcd.Delete(t.Context(), besideKey); err != nil {
		t.Fatal(err)
	}
	if err := w.create(beside); !upstream.IsExist(err) || is(besideKey) {
		t.Errorf("created again: %v, and beside it something is: %t", err, is(besideKey))
	}
}

func putRaw(t *testing.T, etcd *clientv3.Client, key string) {
	t.Helper()
	if _, err := etcd.Put(t.Context(), key, "there"); err != nil {
		t.Error(err)
	}
}
