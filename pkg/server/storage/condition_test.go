package storage_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	upstream "k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/storage"
	"github.com/regent-project/regent/test/etcdtest"
)

const otherKey = "/registry/core/secrets/root/other"

// touch changes the object that creations depend on, and returns its revision.
func (w *world) touch() int64 {
	w.t.Helper()
	resp, err := w.client.Etcd().Put(w.t.Context(), otherKey, "something")
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.Header.Revision
}

// A creation that was decided on another object commits only if that has not changed, at the moment of the transaction.
func TestACreationIsHeldToItsConditionInItsTransaction(t *testing.T) {
	w := newWorld(t, etcdtest.Start(t), false, nil)
	befall := w.beforeNextCommit()
	createByUpdate := func(ctx context.Context) error {
		return w.objects.GuaranteedUpdate(ctx, key, &corev1.ConfigMap{}, true, nil, func(runtime.Object, upstream.ResponseMeta) (runtime.Object, *uint64, error) {
			return object(), nil, nil
		}, nil)
	}
	for name, changes := range map[string]func(){
		"nothing happens": nil,
		"it changes":      func() { w.touch() },
		"it is deleted": func() {
			if _, err := w.client.Etcd().Delete(t.Context(), otherKey); err != nil {
				t.Error(err)
			}
		},
	} {
		for as, token := range map[string]fence.Token{"a user": {}, "a leader": w.take("me")} {
			for how, create := range map[string]func(context.Context) error{"create": w.create, "update": createByUpdate} {
				w.reset(false)
				when := storage.Condition{Resource: corev1.Resource("secrets"), Cluster: "root", Name: "other", Revision: w.touch()}
				ctx := storage.WithCondition(w.admin, when)
				if !token.IsZero() {
					ctx = storage.WithCondition(w.as(w.take("me")), when)
				}
				*befall = changes
				err := create(ctx)
				*befall = nil
				if changes == nil && err != nil || changes != nil && !errors.Is(err, storage.ErrConditionUnmet) {
					t.Errorf("%s, %s by %s: %v", name, how, as, err)
				}
				if (w.stored() != "") != (changes == nil) {
					t.Errorf("%s, %s by %s: stored %q", name, how, as, w.stored())
				}
			}
		}
	}
	// What is there already is told as ever, and changes of it have no condition.
	w.reset(true)
	stale := storage.WithCondition(w.admin, storage.Condition{Resource: corev1.Resource("secrets"), Cluster: "root", Name: "other", Revision: 1})
	if err := w.create(stale); !upstream.IsExist(err) {
		t.Errorf("created again: %v", err)
	}
	if err := w.update(stale); err != nil {
		t.Errorf("updated: %v", err)
	}
	if err := w.delete(stale); err != nil {
		t.Errorf("deleted: %v", err)
	}
}
