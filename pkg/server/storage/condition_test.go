package storage_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	upstream "k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/pkg/server/premise"
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
				when := premise.Condition{Resource: corev1.Resource("secrets"), Cluster: "root", Name: "other", Revision: w.touch()}
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
	stale := storage.WithCondition(w.admin, premise.Condition{Resource: corev1.Resource("secrets"), Cluster: "root", Name: "other", Revision: 1})
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

// What admission has decided by memory holds in the transaction, or is decided again by what is stored.
func TestACreationIsHeldToItsPremiseInItsTransaction(t *testing.T) {
	w := newWorld(t, etcdtest.Start(t), false, nil)
	refused := errors.New("refused")
	var decisions int
	again := func(ctx context.Context) (int64, error) {
		decisions++
		resp, err := w.client.Etcd().Get(ctx, otherKey)
		if err != nil || len(resp.Kvs) == 0 {
			return 0, errors.Join(refused, err)
		}
		return resp.Kvs[0].ModRevision, nil
	}
	remove := func() {
		if _, err := w.client.Etcd().Delete(t.Context(), otherKey); err != nil {
			t.Error(err)
		}
	}
	for name, c := range map[string]struct {
		meanwhile func()
		decisions int
		want      error
	}{
		"nothing happens": {func() {}, 0, nil},
		"it changes":      {func() { w.touch() }, 1, nil},
		"it is deleted":   {remove, 1, refused},
	} {
		for as, begin := range map[string]func() context.Context{
			"a user": func() context.Context { return w.admin }, "a leader": func() context.Context { return w.as(w.take("me")) },
		} {
			w.reset(false)
			ctx := premise.With(begin())
			premise.Set(ctx, premise.Condition{Resource: corev1.Resource("secrets"), Cluster: "root", Name: "other", Revision: w.touch()}, again)
			decisions = 0
			c.meanwhile()
			if err := w.create(ctx); !errors.Is(err, c.want) || decisions != c.decisions {
				t.Errorf("%s, by %s: %v after %d decisions, want %v after %d", name, as, err, decisions, c.want, c.decisions)
			}
			if (w.stored() != "") != (c.want == nil) {
				t.Errorf("%s, by %s: stored %q", name, as, w.stored())
			}
		}
	}
	// A condition of the request's own holds as well, and is not decided again.
	w.reset(false)
	ctx := storage.WithCondition(premise.With(w.admin), premise.Condition{Resource: corev1.Resource("secrets"), Cluster: "root", Name: "third", Revision: 1})
	premise.Set(ctx, premise.Condition{Resource: corev1.Resource("secrets"), Cluster: "root", Name: "other", Revision: w.touch()}, again)
	if err := w.create(ctx); !errors.Is(err, storage.ErrConditionUnmet) || w.stored() != "" {
		t.Errorf("a condition that does not hold: %v, stored %q", err, w.stored())
	}
	// What changes all the time ends the request.
	ctx = premise.With(w.admin)
	premise.Set(ctx, premise.Condition{Resource: corev1.Resource("secrets"), Cluster: "root", Name: "other", Revision: 1}, func(context.Context) (int64, error) {
		before := w.touch()
		w.touch()
		return before, nil
	})
	if err := w.create(ctx); !apierrors.IsTimeout(err) || w.stored() != "" {
		t.Errorf("what changes all the time: %v, stored %q", err, w.stored())
	}
	// Changes have no premise, and neither have contexts without one.
	w.reset(true)
	stale := premise.With(w.admin)
	premise.Set(stale, premise.Condition{Resource: corev1.Resource("secrets"), Cluster: "root", Name: "other", Revision: 1}, func(context.Context) (int64, error) { return 0, refused })
	if err := w.update(stale); err != nil {
		t.Errorf("updated: %v", err)
	}
	premise.Set(w.admin, premise.Condition{}, nil)
	if premise.From(w.admin) != nil || premise.From(stale) == nil {
		t.Error("From does not know which context has premises")
	}
}
