package embed

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/regent-project/regent/pkg/election/fence"
)

// What a server writes into etcd by itself is held as what it stores.
func TestWritesPastTheStoresAreHeldToTheirTerm(t *testing.T) {
	w := newWorld(t)
	held := w.guard.KV(w.etcd)
	const key = prefix + "/own"
	for name, write := range map[string]func(context.Context) error{
		"put": func(ctx context.Context) error { _, err := held.Put(ctx, key, "new"); return err },
		"do":  func(ctx context.Context) error { _, err := held.Do(ctx, clientv3.OpPut(key, "new")); return err },
		"delete": func(ctx context.Context) error {
			resp, err := held.Delete(ctx, key)
			if err == nil && (resp.Deleted != 1 || resp.Header.GetRevision() == 0) {
				t.Errorf("deleted %v", resp)
			}
			return err
		},
		"transaction": func(ctx context.Context) error {
			resp, err := held.Txn(ctx).If(clientv3.Compare(clientv3.Value(key), "=", "old")).Then(clientv3.OpPut(key, "new")).Else(clientv3.OpGet(key)).Commit()
			if err == nil && !resp.Succeeded {
				t.Errorf("answered %v", resp)
			}
			return err
		},
		"the other half of one": func(ctx context.Context) error {
			resp, err := held.Txn(ctx).If(clientv3.Compare(clientv3.Value(key), "=", "other")).Else(clientv3.OpPut(key, "new"), clientv3.OpGet(key)).Commit()
			if err == nil && (resp.Succeeded || len(resp.Responses) != 2 || string(resp.Responses[1].GetResponseRange().Kvs[0].Value) != "new") {
				t.Errorf("answered %v", resp)
			}
			return err
		},
	} {
		for fate, what := range fates {
			t.Run(name+", "+fate, func(t *testing.T) {
				if _, err := w.etcd.Put(t.Context(), key, "old"); err != nil {
					t.Fatal(err)
				}
				w.remove()
				token := w.take("me")
				what.befall(w)
				err := write(fence.With(t.Context(), token))
				got, readErr := held.Get(t.Context(), key)
				if readErr != nil {
					t.Fatal(readErr)
				}
				changed := len(got.Kvs) == 0 || string(got.Kvs[0].Value) != "old"
				if what.live && (err != nil || !changed) || !what.live && (!fence.IsFenced(err) || changed) {
					t.Errorf("%v, changed: %t", err, changed)
				}
			})
		}
		if _, err := w.etcd.Put(t.Context(), key, "old"); err != nil {
			t.Fatal(err)
		}
		if err := write(t.Context()); err != nil {
			t.Errorf("%s without a token: %v", name, err)
		}
	}
}
