package storage_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	corev1alpha1 "github.com/kcp-dev/sdk/apis/core/v1alpha1"
	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	clientv3 "go.etcd.io/etcd/client/v3"
	"pgregory.net/rapid"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/storage"
)

const comes logicalcluster.Name = "comes"

// comingWorld is a frozenWorld in which logical clusters may come to root.
func comingWorld(t *testing.T) *world {
	t.Helper()
	w := frozenWorld(t)
	openOver(t, w.client, tenancyv1alpha1.Resource("workspaces"), false)
	return w
}

// The objects of these tests are ConfigMaps, whatever the resource.
func lcOf(phase string) storage.Stored {
	return storage.Stored{Key: "core.kcp.io/logicalclusters/" + corev1alpha1.LogicalClusterName, JSON: []byte(storedText(corev1alpha1.LogicalClusterName, phase))}
}

func workspaceOf(name string) storage.Stored {
	return storage.Stored{Key: "tenancy.kcp.io/workspaces/" + name, JSON: []byte(storedText(name, "Ready"))}
}

func mapOf(name string) storage.Stored {
	return storage.Stored{Key: "core/configmaps/default/" + name, JSON: []byte(storedText(name, "as it was"))}
}

func (w *world) come(cluster logicalcluster.Name) storage.Freeze {
	w.t.Helper()
	f, err := w.client.Come(w.t.Context(), cluster, lcOf("coming"), "the test says so")
	if err != nil {
		w.t.Fatal(err)
	}
	return f
}

// settle lets a cluster be there, with a Workspace of its name.
func (w *world) settle(f storage.Freeze) error {
	_, err := w.client.Settle(w.t.Context(), f, lcOf("there"), "root", w.revisionOf("root"), workspaceOf(f.Cluster.String()))
	return err
}

// revisionOf returns the revision of a LogicalCluster.
func (w *world) revisionOf(cluster logicalcluster.Name) int64 {
	w.t.Helper()
	there, err := w.client.Etcd().Get(w.t.Context(), fmt.Sprintf("/registry/core.kcp.io/logicalclusters/%s/cluster", cluster))
	if err != nil {
		w.t.Fatal(err)
	}
	if len(there.Kvs) == 0 {
		return 0
	}
	return there.Kvs[0].ModRevision
}

// keysOf returns what etcd has of a cluster: keys, without their common begin.
func (w *world) keysOf(cluster logicalcluster.Name) (keys []string) {
	w.t.Helper()
	all, err := w.client.Etcd().Get(w.t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, kv := range all.Kvs {
		if key := strings.TrimPrefix(string(kv.Key), "/registry/"); strings.Contains("/"+key+"/", "/"+cluster.String()+"/") {
			keys = append(keys, key)
		}
	}
	return keys
}

// expire ends a freeze, as when whoever has begun it does not renew it.
func (w *world) expire(f storage.Freeze) {
	w.t.Helper()
	lease, _, _ := strings.Cut(f.ID(), "-")
	id, err := strconv.ParseInt(lease, 16, 64)
	if err == nil {
		_, err = w.client.Etcd().Revoke(w.t.Context(), clientv3.LeaseID(id))
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// The LogicalCluster and the Workspace are there from one revision on, and until then nobody else writes in the
// cluster.
func TestAClusterThatComesIsThereWithItsWorkspaceAtOnce(t *testing.T) {
	w := comingWorld(t)
	f := w.come(comes)
	if err := w.client.Write(t.Context(), f, []storage.Stored{mapOf("a"), mapOf("b")}, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.client.Renew(t.Context(), f); err != nil {
		t.Error(err)
	}
	own := clusters.With(w.admin, comes)
	if err := w.create(context.WithValue(own, ownKey{}, true)); err == nil {
		t.Error("a controller writes in a cluster that comes")
	}
	if err := w.settle(f); err != nil {
		t.Fatal(err)
	}
	workspace, err := w.client.Etcd().Get(t.Context(), "/registry/tenancy.kcp.io/workspaces/root/comes")
	if err != nil || len(workspace.Kvs) != 1 || workspace.Kvs[0].ModRevision != w.revisionOf(comes) {
		t.Errorf("%v, %v: the LogicalCluster is of revision %d", workspace, err, w.revisionOf(comes))
	}
	if err := w.create(own); err != nil {
		t.Errorf("write in a cluster that is there: %v", err)
	}
	if keys := w.keysOf(comes); len(keys) != 5 { // with the Workspace, and what was just written
		t.Errorf("%q", keys)
	}
	if _, err := w.client.Come(t.Context(), comes, lcOf("coming"), ""); !errors.Is(err, storage.ErrClusterThere) {
		t.Errorf("it comes again: %v", err)
	}
}

func TestWhatIsLeftOfAClusterThatDidNotComeIsRemoved(t *testing.T) {
	for name, remove := range map[string]func(*world, storage.Freeze) error{
		"by who took it in": func(w *world, f storage.Freeze) error { return w.client.Discard(w.t.Context(), comes, f.Revision, &f) },
		"by the leader": func(w *world, f storage.Freeze) error {
			if err := w.client.Discard(w.t.Context(), comes, f.Revision, nil); !errors.Is(err, storage.ErrFrozen) {
				w.t.Errorf("while it comes: %v", err)
			}
			w.expire(f)
			return w.client.Discard(w.t.Context(), comes, f.Revision, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := comingWorld(t)
			f := w.come(comes)
			var objects []storage.Stored
			for n := range 250 { // more than one transaction has
				objects = append(objects, mapOf(fmt.Sprint("m", n)))
			}
			if err := w.client.Write(t.Context(), f, objects, nil); err != nil {
				t.Fatal(err)
			}
			if err := remove(w, f); err != nil {
				t.Fatal(err)
			}
			if left := w.keysOf(comes); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
			if err := w.settle(f); !errors.Is(err, storage.ErrThawed) {
				t.Errorf("settle: %v", err)
			}
			if err := w.client.Discard(t.Context(), comes, f.Revision, nil); !errors.Is(err, storage.ErrNoCluster) {
				t.Errorf("again: %v", err)
			}
			w.come(comes)
		})
	}
}

func TestWhatKeepsAClusterFromComing(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*world)
		want   error
	}{
		"it is there": {func(w *world) { w.put("/registry/core.kcp.io/logicalclusters/comes/cluster") }, storage.ErrClusterThere},
		"it comes":    {func(w *world) { w.come(comes) }, storage.ErrFrozen},
		"it has objects without a LogicalCluster": {
			func(w *world) { w.put("/registry/core/configmaps/comes/default/x") }, storage.ErrClusterThere,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := comingWorld(t)
			c.before(w)
			before := w.keysOf(comes)
			if _, err := w.client.Come(t.Context(), comes, lcOf("coming"), ""); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if now := w.keysOf(comes); len(now) != len(before) {
				t.Errorf("%q, before %q", now, before)
			}
		})
	}
}

func TestWhatKeepsAClusterThatComesFromBeingThere(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*world, storage.Freeze) (after func())
		want   error
	}{
		"its Workspace is there": {func(w *world, _ storage.Freeze) func() {
			w.put("/registry/tenancy.kcp.io/workspaces/root/comes")
			return func() { w.removeKey("/registry/tenancy.kcp.io/workspaces/root/comes") }
		}, storage.ErrWorkspaceThere},
		"its parent is frozen": {func(w *world, _ storage.Freeze) func() {
			f := w.freeze()
			return func() { w.thaw(f) }
		}, storage.ErrFrozen},
		"the freeze has ended": {func(w *world, f storage.Freeze) func() { w.expire(f); return nil }, storage.ErrThawed},
		"its LogicalCluster has changed": {func(w *world, _ storage.Freeze) func() {
			w.put("/registry/core.kcp.io/logicalclusters/comes/cluster")
			return nil
		}, storage.ErrThawed},
	} {
		t.Run(name, func(t *testing.T) {
			w := comingWorld(t)
			f := w.come(comes)
			after := c.before(w, f)
			if err := w.settle(f); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if after == nil {
				return
			}
			after()
			if err := w.settle(f); err != nil {
				t.Errorf("later: %v", err)
			}
		})
	}
	t.Run("its parent has changed", func(t *testing.T) {
		w := comingWorld(t)
		f := w.come(comes)
		revision := w.revisionOf("root")
		w.put("/registry/core.kcp.io/logicalclusters/root/cluster")
		if _, err := w.client.Settle(t.Context(), f, lcOf("there"), "root", revision, workspaceOf("comes")); !errors.Is(err, storage.ErrParentChanged) {
			t.Errorf("%v", err)
		}
	})
	t.Run("it is a freeze of a cluster that is there", func(t *testing.T) {
		w := comingWorld(t)
		f := w.freeze()
		if _, err := w.client.Settle(t.Context(), f, lcOf("there"), "other", w.revisionOf("other"), workspaceOf("comes")); !errors.Is(err, storage.ErrThawed) {
			t.Errorf("settled: %v", err)
		}
		if err := w.client.Discard(t.Context(), "root", f.Revision, &f); !errors.Is(err, storage.ErrThawed) || w.revisionOf("root") == 0 {
			t.Errorf("removed: %v", err)
		}
	})
}

func (w *world) put(key string) {
	w.t.Helper()
	if _, err := w.client.Etcd().Put(w.t.Context(), key, "somebody else's"); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) removeKey(key string) {
	w.t.Helper()
	if _, err := w.client.Etcd().Delete(w.t.Context(), key); err != nil {
		w.t.Fatal(err)
	}
}

// Whoever takes a cluster in may die at any step, and leaders remove what is left at any moment, several at once: in
// the end the cluster is there with its Workspace and all that was written, or nothing of it is.
func TestAClusterComesAsAWholeOrNotAtAll(t *testing.T) {
	w := comingWorld(t)
	n := 0
	rapid.Check(t, func(r *rapid.T) {
		n++
		cluster := logicalcluster.Name(fmt.Sprint("c", n))
		count := rapid.IntRange(0, 4).Draw(r, "writes")
		dies := rapid.IntRange(0, count+2).Draw(r, "dies before")
		cancels := rapid.Bool().Draw(r, "is cancelled")
		leaders := rapid.IntRange(1, 3).Draw(r, "leaders")
		late := rapid.Int64Range(0, 6).Draw(r, "how many revisions it goes on later")
		die := func(f storage.Freeze) {
			w.expire(f)
			for now := w.revision(); w.revision() < now+late && w.revisionOf(cluster) > 0; {
				continue
			}
		}

		f := w.come(cluster)
		over := make(chan struct{})
		var all sync.WaitGroup
		for range leaders {
			all.Go(func() {
				for {
					w.discard(cluster)
					select {
					case <-over:
						return
					default:
					}
				}
			})
		}
		settled := func() bool {
			for step := range count {
				if step == dies {
					die(f)
				}
				if err := w.client.Write(t.Context(), f, []storage.Stored{mapOf(fmt.Sprint("m", step))}, nil); err != nil {
					return false
				}
			}
			if dies == count {
				die(f)
			}
			if cancels {
				_ = w.client.Discard(t.Context(), cluster, f.Revision, &f)
			}
			return w.settle(f) == nil
		}()
		close(over)
		all.Wait()
		if !settled {
			if dies > count && !cancels {
				r.Error("nothing has happened to it, and it is not there")
			}
			w.discard(cluster) // what was still going on
		}
		want := 0
		if settled {
			want = count + 2
		}
		if keys := w.keysOf(cluster); len(keys) != want {
			r.Errorf("settled %t, and etcd has %q", settled, keys)
		}
	})
}

func (w *world) revision() int64 {
	w.t.Helper()
	revision, err := w.client.Revision(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return revision
}

// discard does what a leader does that sees a cluster that comes.
func (w *world) discard(cluster logicalcluster.Name) {
	there, err := w.client.Etcd().Get(w.t.Context(), fmt.Sprintf("/registry/core.kcp.io/logicalclusters/%s/cluster", cluster))
	if err != nil || len(there.Kvs) == 0 || !strings.Contains(string(there.Kvs[0].Value), "coming") {
		return
	}
	err = w.client.Discard(w.t.Context(), cluster, there.Kvs[0].ModRevision, nil)
	if err != nil && !errors.Is(err, storage.ErrFrozen) && !errors.Is(err, storage.ErrNoCluster) && !errors.Is(err, storage.ErrThawed) {
		w.t.Error(err)
	}
}
