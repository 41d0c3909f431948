package storage_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	upstream "k8s.io/apiserver/pkg/storage"
	"pgregory.net/rapid"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/storage"
	"github.com/regent-project/regent/test/etcdtest"
)

// frozenWorld is a world whose logical cluster can be frozen.
func frozenWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, etcdtest.Start(t), true, nil)
	openOver(t, w.client, corev1alpha1.Resource("logicalclusters"), false)
	for _, cluster := range []string{"root", "other"} {
		if _, err := w.client.Etcd().Put(t.Context(), "/registry/core.kcp.io/logicalclusters/"+cluster+"/cluster", "it is there"); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *world) freeze() storage.Freeze {
	w.t.Helper()
	f, err := w.client.Freeze(w.t.Context(), "root", "the test says so")
	if err != nil {
		w.t.Error(err)
	}
	return f
}

func (w *world) thaw(f storage.Freeze) int64 {
	w.t.Helper()
	through, err := w.client.Thaw(w.t.Context(), f)
	if err != nil {
		w.t.Error(err)
	}
	return through
}

// A write that was let in before its cluster is frozen is not made while it is: the transaction compares. Those of
// clients wait, and the process's own are refused at once, without a time at which their client tries again by itself.
func TestNothingIsWrittenInAFrozenCluster(t *testing.T) {
	w := frozenWorld(t)
	befall := w.beforeNextCommit()
	for name, c := range map[string]struct {
		exists bool
		write  func(*world, context.Context) error
	}{
		"create": {false, (*world).create}, "update": {true, (*world).update}, "delete": {true, (*world).delete},
	} {
		for as, ctx := range map[string]context.Context{"a user": w.admin, "who has a token": w.as(w.take("me"))} {
			w.reset(c.exists)
			before := w.stored()
			var f storage.Freeze
			*befall = func() { f = w.freeze() }
			refused := c.write(w, context.WithValue(ctx, ownKey{}, true))
			var status apierrors.APIStatus
			if !apierrors.IsServiceUnavailable(refused) || !errors.As(refused, &status) || status.Status().Details != nil || !strings.Contains(refused.Error(), "the test says so") {
				t.Errorf("%s by a controller for %s: %v", name, as, refused)
			}
			*befall = nil
			made := make(chan error, 1)
			go func() { made <- c.write(w, ctx) }()
			select {
			case err := <-made:
				t.Errorf("%s by %s did not wait: %v", name, as, err)
			// long enough to find one that does not wait, most of the time
			case <-time.After(50 * time.Millisecond):
			}
			if now := w.stored(); now != before {
				t.Errorf("%s by %s: stored %q", name, as, now)
			}
			if through := w.thaw(f); through < f.Revision {
				t.Errorf("frozen from revision %d through %d", f.Revision, through)
			}
			if err := <-made; err != nil || w.stored() == before {
				t.Errorf("%s by %s: %v, stored %q", name, as, err, w.stored())
			}
		}
	}
}

func TestOtherClustersDoNotWait(t *testing.T) {
	w := frozenWorld(t)
	w.freeze()
	for _, cluster := range []logicalcluster.Name{"other", "system:admin"} {
		if err := w.create(clusters.With(t.Context(), cluster)); err != nil {
			t.Errorf("%s: %v", cluster, err)
		}
	}
}

func TestAWaitingWriteEndsWithItsRequest(t *testing.T) {
	w := frozenWorld(t)
	w.freeze()
	ctx, cancel := context.WithTimeout(w.admin, 50*time.Millisecond)
	defer cancel()
	if err := w.create(ctx); err == nil || w.stored() != "" {
		t.Errorf("%v, stored %q", err, w.stored())
	}
}

func TestWhatCannotBeFrozen(t *testing.T) {
	w := frozenWorld(t)
	for cluster, want := range map[logicalcluster.Name]error{"absent": storage.ErrNoCluster, "system:admin": storage.ErrNoCluster, "root": storage.ErrFrozen} {
		if want == storage.ErrFrozen {
			w.freeze()
		}
		if _, err := w.client.Freeze(t.Context(), cluster, ""); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", cluster, err, want)
		}
	}
	if _, err := w.client.Freeze(t.Context(), "a/b", ""); err == nil {
		t.Error("a name that leads elsewhere")
	}
	leases, err := w.client.Etcd().Leases(t.Context())
	if err != nil || len(leases.Leases) != 1 {
		t.Errorf("%v, %v: one freeze holds", leases, err)
	}
}

func storedText(name, value string) string {
	return fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"namespace":"default","uid":"u"},"data":{"value":%q}}`, name, value)
}

// Whoever has frozen a cluster and was away for too long writes nothing any more, also if somebody else has frozen it.
func TestAFreezeThatHasEndedWritesNothing(t *testing.T) {
	for name, end := range map[string]func(*world, storage.Freeze){
		"thawed":           func(w *world, f storage.Freeze) { w.thaw(f) },
		"frozen by others": func(w *world, f storage.Freeze) { w.thaw(f); w.freeze() },
		"not renewed": func(w *world, _ storage.Freeze) {
			all, err := w.client.Etcd().Leases(w.t.Context())
			if err != nil || len(all.Leases) != 1 {
				w.t.Fatal(all, err)
			}
			if _, err := w.client.Etcd().Revoke(w.t.Context(), all.Leases[0].ID); err != nil {
				w.t.Fatal(err)
			}
		},
		"removed by an administrator": func(w *world, _ storage.Freeze) {
			if _, err := w.client.Etcd().Delete(w.t.Context(), "/registry/.frozen/root"); err != nil {
				w.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := frozenWorld(t)
			f := w.freeze()
			if err := w.client.Renew(t.Context(), f); err != nil {
				t.Error(err)
			}
			end(w, f)
			if err := w.client.Write(t.Context(), f, []storage.Stored{{Key: "core/configmaps/default/x", JSON: []byte(storedText("x", "y"))}}, nil); !errors.Is(err, storage.ErrThawed) {
				t.Errorf("write: %v", err)
			}
			if err := w.client.Renew(t.Context(), f); !errors.Is(err, storage.ErrThawed) {
				t.Errorf("renew: %v", err)
			}
			if _, err := w.client.Thaw(t.Context(), f); !errors.Is(err, storage.ErrThawed) {
				t.Errorf("thaw: %v", err)
			}
			if w.stored() != "" {
				t.Errorf("stored %q", w.stored())
			}
		})
	}
}

// An ID comes from outside: one with the lease of something else neither renews nor ends that.
func TestAFreezeEndsNoOtherLease(t *testing.T) {
	w := frozenWorld(t)
	other, err := w.client.Etcd().Grant(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	f := w.freeze()
	_, revision, _ := strings.Cut(f.ID(), "-")
	forged, err := storage.ParseFreeze("root", fmt.Sprintf("%x-%s", int64(other.ID), revision))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.client.Renew(t.Context(), forged); !errors.Is(err, storage.ErrThawed) {
		t.Errorf("renew: %v", err)
	}
	if _, err := w.client.Thaw(t.Context(), forged); !errors.Is(err, storage.ErrThawed) {
		t.Errorf("thaw: %v", err)
	}
	if left, err := w.client.Etcd().TimeToLive(t.Context(), other.ID); err != nil || left.TTL <= 0 {
		t.Errorf("the other lease: %v, %v", left, err)
	}
	w.thaw(f)
}

func TestAFreezeIsKnownByItsID(t *testing.T) {
	w := frozenWorld(t)
	f := w.freeze()
	if got, err := storage.ParseFreeze("root", f.ID()); err != nil || got != f {
		t.Errorf("%v, %v, want %v", got, err, f)
	}
	for _, id := range []string{"", "-", "1", "1-", "-1", "x-1", "1-x", "0-0", "1--1", "ffffffffffffffff-1"} {
		if got, err := storage.ParseFreeze("root", id); err == nil {
			t.Errorf("%q: %v", id, got)
		}
	}
}

// Whatever is written, and whenever a cluster is frozen: from the revision of a freeze through that of its thaw etcd
// has no change of the cluster but those under the freeze, no write fails, and none is lost.
func TestAFreezeIsExactInEtcdsHistory(t *testing.T) {
	w := frozenWorld(t)
	rapid.Check(t, func(r *rapid.T) {
		type span struct{ from, through int64 }
		began, err := w.client.Revision(t.Context())
		if err != nil {
			r.Fatal(err)
		}
		var writers sync.WaitGroup
		counts := rapid.SliceOfN(rapid.IntRange(1, 5), 1, 3).Draw(r, "writes of each writer")
		for n, count := range counts {
			writers.Go(func() {
				name := fmt.Sprint("of", n)
				for range count {
					err := w.objects.GuaranteedUpdate(w.admin, "/core/configmaps/default/"+name, &corev1.ConfigMap{}, true, nil, counting(name), nil)
					if err != nil {
						t.Errorf("a write failed: %v", err)
					}
				}
			})
		}
		var frozen []span
		under := 0
		for range rapid.IntRange(1, 3).Draw(r, "freezes") {
			f := w.freeze()
			for range rapid.IntRange(0, 2).Draw(r, "writes under it") {
				if err := w.client.Write(t.Context(), f, []storage.Stored{{Key: "core/configmaps/default/under", JSON: []byte(storedText("under", fmt.Sprint(under)))}}, nil); err != nil {
					t.Error(err)
				}
				under++
			}
			frozen = append(frozen, span{f.Revision, w.thaw(f)})
		}
		writers.Wait()
		ended, err := w.client.Revision(t.Context())
		if err != nil {
			r.Fatal(err)
		}
		for _, event := range historyOf(t, w.client, "/registry/core/configmaps/root/", began, ended) {
			if strings.HasSuffix(string(event.Kv.Key), "/under") {
				under--
				continue
			}
			for _, s := range frozen {
				if at := event.Kv.ModRevision; at >= s.from && at <= s.through {
					r.Errorf("%s was written at %d, and the cluster was frozen from %d through %d", event.Kv.Key, at, s.from, s.through)
				}
			}
			if event.Type == mvccpb.DELETE {
				r.Errorf("%s was deleted", event.Kv.Key)
			}
		}
		if under != 0 {
			r.Errorf("%d writes under freezes are missing", under)
		}
		for n, count := range counts {
			name, out := fmt.Sprint("of", n), &corev1.ConfigMap{}
			if err := w.objects.Get(w.admin, "/core/configmaps/default/"+name, upstream.GetOptions{}, out); err != nil || out.Data["count"] != fmt.Sprint(count) {
				r.Errorf("%s has %v after %d writes: %v", name, out.Data, count, err)
			}
			if err := w.objects.Delete(w.admin, "/core/configmaps/default/"+name, out, nil, upstream.ValidateAllObjectFunc, nil, upstream.DeleteOptions{}); err != nil {
				r.Error(err)
			}
		}
	})
}

func historyOf(t *testing.T, client *storage.Client, prefix string, after, through int64) (events []*clientv3.Event) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	mark, err := client.Etcd().Put(ctx, prefix, "the end")
	if err != nil {
		t.Fatal(err)
	}
	for some := range client.Etcd().Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(after+1)) {
		if err := some.Err(); err != nil {
			t.Fatal(err)
		}
		for _, event := range some.Events {
			if event.Kv.ModRevision >= mark.Header.Revision {
				return events
			}
			if event.Kv.ModRevision <= through {
				events = append(events, event)
			}
		}
	}
	t.Fatal("the history ends early")
	return nil
}

// counting returns an update that counts how often it was made.
func counting(name string) upstream.UpdateFunc {
	return upstream.SimpleUpdate(func(in runtime.Object) (runtime.Object, error) {
		cm := in.(*corev1.ConfigMap).DeepCopy()
		n, _ := strconv.Atoi(cm.Data["count"])
		cm.Name, cm.Namespace, cm.Data = name, "default", map[string]string{"count": strconv.Itoa(n + 1)}
		return cm, nil
	})
}
