package storage_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	upstream "k8s.io/apiserver/pkg/storage"

	"github.com/regent-project/regent/pkg/election/fence"
	"github.com/regent-project/regent/test/etcdtest"
)

// A write that met a conflict may find, the second time, that nothing is left to be done. The first try proves nothing
// of the term by then.
func TestAnUpdateThatAnotherHasMadeIsHeldToItsTerm(t *testing.T) {
	w := newWorld(t, etcdtest.Start(t), false, nil)
	for name, fate := range fates {
		t.Run(name, func(t *testing.T) {
			w.reset(true)
			w.remove()
			ctx := w.as(w.take("me"))
			// The watch cache may still have what another fate has left: that must not be what is wanted
			// here.
			wanted := func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"wanted": name} }
			tries := 0
			err := w.set(ctx, key, func(cm *corev1.ConfigMap) {
				switch tries++; tries {
				case 1: // another does it first
					if err := w.set(w.admin, key, wanted); err != nil {
						t.Fatal(err)
					}
				case 2:
					fate.befall(w)
				}
				wanted(cm)
			})
			if tries != 2 {
				t.Fatalf("tried %d times", tries)
			}
			if fate.live && err != nil || !fate.live && !fence.IsFenced(err) {
				t.Error(err)
			}
		})
	}
}

// What expires does so whoever writes it.
func TestAFencedWriteExpiresLikeAnyOther(t *testing.T) {
	w := newWorld(t, etcdtest.Start(t), true, nil)
	token := w.take("me")
	const ttl = 1000 // seconds
	expires := func() (id int64) {
		t.Helper()
		resp, err := w.client.Etcd().Get(t.Context(), "/registry/core/configmaps/root/default/x")
		if err != nil || len(resp.Kvs) != 1 {
			t.Fatalf("%d objects, %v", len(resp.Kvs), err)
		}
		return resp.Kvs[0].Lease
	}
	if err := w.objects.Create(w.as(token), key, object(), &corev1.ConfigMap{}, ttl); err != nil {
		t.Fatal(err)
	}
	id := expires()
	if id == 0 {
		t.Fatal("what was created does not expire")
	}
	left, err := w.client.Etcd().TimeToLive(t.Context(), clientv3.LeaseID(id))
	if err != nil || left.GrantedTTL < ttl {
		t.Errorf("it expires after %d s, %v; want %d at least", left.GrantedTTL, err, ttl)
	}
	again := uint64(ttl)
	err = w.objects.GuaranteedUpdate(w.as(token), key, &corev1.ConfigMap{}, false, nil, func(obj runtime.Object, _ upstream.ResponseMeta) (runtime.Object, *uint64, error) {
		cm := obj.(*corev1.ConfigMap).DeepCopy()
		cm.Data = map[string]string{"changed": "yes"}
		return cm, &again, nil
	}, nil)
	if err != nil || expires() == 0 {
		t.Errorf("what was updated does not expire: %v", err)
	}
	if err := w.update(w.as(token)); err != nil || expires() != 0 {
		t.Errorf("an update without an expiry keeps the old one: %v", err)
	}
}

// A renewal moves the revision that writes are held to: what is sent beside it would be tried in vain first. The wait
// is bounded, and this machine may be slower now and then.
func TestAWriteWaitsForARenewalThatIsUnderWay(t *testing.T) {
	const tries = 10
	w := newWorld(t, etcdtest.Start(t), true, nil)
	token := w.take("me")
	var renewing, early atomic.Bool
	w.client.BeforeCommit(func() {
		if renewing.Load() {
			early.Store(true)
		}
	})
	waited := 0
	for range tries {
		w.reset(false)
		early.Store(false)
		begun, release := make(chan struct{}), make(chan struct{})
		var renewal sync.WaitGroup
		renewal.Go(func() {
			begin := sync.OnceFunc(func() { renewing.Store(true); close(begun) })
			w.edit(func(data map[string]string) {
				begin()
				<-release
				data["renewed"] += "x"
			})
		})
		<-begun
		time.AfterFunc(10*time.Millisecond, func() { renewing.Store(false); close(release) })
		if err := w.create(w.as(token)); err != nil {
			t.Fatal(err)
		}
		renewal.Wait()
		if !early.Load() {
			waited++
		}
	}
	if waited < tries/2 {
		t.Errorf("%d of %d writes waited for the renewal under way", waited, tries)
	}
}
