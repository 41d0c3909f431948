package server

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/format"
	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/test/etcdtest"
)

// I13: with many workspaces a new leader works on those that need something, and on nothing else before what users wait
// for. A replica has no more goroutines with many workspaces than with one.
func TestAShardOfTwoThousandWorkspacesIsLedLikeOneOfOne(t *testing.T) {
	const many, lacking = 2000, 50
	way := etcdtest.Start(t)
	root := t.TempDir()
	first := startCatalogued(t, root, way, inFirstFormat)
	u := &operator{t, first}
	u.until("root is Ready", func() bool { return first.phase("root") == "Ready" })
	u.create("model-0000")
	cluster := u.ready("model-0000")
	u.until("its namespaces have all that they get", func() bool {
		return len(first.shard.Informers.ConfigMaps.List(logicalcluster.Name(cluster))) == 2
	})
	with := leastFootprint(t).goroutines
	uid := string(u.get("model-0000").UID)
	if err := first.stop(t); err != nil {
		t.Fatal(err)
	}

	// Nobody leads. The workspace is copied as it is stored, under names of the same lengths, since some of it is
	// protobuf.
	etcd := etcdtest.Client(t, way)
	stored, err := etcd.Get(t.Context(), "/registry/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	// of etcd, for one workspace: three of it, two of its cluster, and its namespaces with two objects each
	var writes int64
	for _, kv := range stored.Kvs {
		if key := string(kv.Key); strings.Contains(key, cluster) || strings.HasSuffix(key, "/workspaces/root/model-0000") {
			writes += kv.Version
		}
	}
	if writes > 11 {
		t.Errorf("a workspace has cost %d writes, want 11", writes)
	}
	var lacks []string // clusters without a namespace
	for n := 1; n <= many; n++ {
		copied := fmt.Sprintf("c%015d", n)
		names := strings.NewReplacer(cluster, copied, "model-0000", fmt.Sprintf("model-%04d", n), uid, fmt.Sprintf("%0*d", len(uid), n))
		var puts []clientv3.Op
		for _, kv := range stored.Kvs {
			key := string(kv.Key)
			if !strings.Contains(key, cluster) && !strings.HasSuffix(key, "/workspaces/root/model-0000") || strings.Contains(key, "/events/") {
				continue
			}
			if n <= lacking && strings.HasSuffix(key, "/kube-system") {
				lacks = append(lacks, copied)
				continue
			}
			puts = append(puts, clientv3.OpPut(names.Replace(key), names.Replace(string(kv.Value))))
		}
		if _, err := etcd.Txn(t.Context()).Then(puts...).Commit(); err != nil {
			t.Fatal(err)
		}
		if n == 1 && (len(puts) != 7 || !bytes.Contains(puts[0].ValueBytes(), []byte(copied))) {
			t.Fatalf("%d objects of a workspace without a namespace were copied, want 7", len(puts))
		}
	}

	second := startCatalogued(t, root, way, inFirstFormat)
	u = &operator{t, second}
	u.create("fresh")
	u.ready("fresh")
	for _, cluster := range lacks {
		u.until(cluster+" has its namespace again", func() bool { return second.namespace(cluster, "kube-system") != nil })
	}
	u.until("the sweep has ended", func() bool { _, running := second.swept(); return !running })
	if n := len(second.shard.Informers.Workspaces.List(clusters.Root)); n != many+2 {
		t.Errorf("%d workspaces, want %d", n, many+2)
	}
	if swept, _ := second.swept(); swept["logicalcluster"] < lacking/2 || swept["logicalcluster"] > 2*lacking || swept["workspace"] > lacking || swept["namespace"]+swept["garbagecollector"]+swept["serviceaccount"] > lacking {
		t.Errorf("the sweep worked on %v, and %d clusters lacked a namespace", swept, lacking)
	}
	if now := leastFootprint(t).goroutines; now > with+10 {
		t.Errorf("%d goroutines with %d workspaces, %d with one", now, many, with)
	}
}

// inFirstFormat has an empty shard begin as version 0.2 does: nothing is built into its logical clusters.
func inFirstFormat(s *Server) {
	s.cfg.Formats = format.Formats{Version: "v0.2.0", Oldest: 1, Newest: 1, Since: "v0.1.0"}
}

// A workspace that nobody has used yet takes two objects of etcd, which come in one write and go in one. When a
// workspace is deleted, nothing of it is left, whatever was changed or deleted of what is built into it.
func TestAWorkspaceComesAndGoesByOneWrite(t *testing.T) {
	way := etcdtest.Start(t)
	at := startCatalogued(t, t.TempDir(), way)
	etcd := etcdtest.Client(t, way)
	u := &operator{t, at}
	u.until("root is Ready", func() bool { return at.phase("root") == "Ready" })
	isOf := func(key []byte, cluster, name string) bool {
		return strings.Contains(string(key), "/"+cluster+"/") || strings.HasSuffix(string(key), "/workspaces/root/"+name)
	}
	of := func(cluster, name string) (objects int) {
		stored := must(etcd.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly()))(u)
		for _, kv := range stored.Kvs {
			if isOf(kv.Key, cluster, name) {
				objects++
			}
		}
		return objects
	}
	changes := etcd.Watch(t.Context(), "/registry/", clientv3.WithPrefix())
	u.create("unused", "used")
	unused, used := u.ready("unused"), u.ready("used")
	kube := at.shard.Clients.Kube
	must(kube.CoreV1().Namespaces().Patch(in(u, used), "default", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}))(u)
	must(0, kube.CoreV1().ServiceAccounts("default").Delete(in(u, used), "default", metav1.DeleteOptions{}))(u)
	must(0, kube.CoreV1().ConfigMaps("kube-system").Delete(in(u, used), "kube-root-ca.crt", metav1.DeleteOptions{}))(u)
	u.until("what was deleted is made again", func() bool {
		account, err := kube.CoreV1().ServiceAccounts("default").Get(in(u, used), "default", metav1.GetOptions{})
		published, failed := kube.CoreV1().ConfigMaps("kube-system").Get(in(u, used), "kube-root-ca.crt", metav1.GetOptions{})
		return of(used, "used") == 5 && err == nil && account.UID != "" && failed == nil && len(published.Data) == 1
	})
	u.delete("unused", "used")
	u.until("nothing is left", func() bool { return of(unused, "unused")+of(used, "used") == 0 })

	revisions, last := map[string]map[int64]int{}, must(etcd.Get(t.Context(), "/registry/"))(u).Header.Revision
	for seen := int64(0); seen < last; {
		response := <-changes
		for _, event := range response.Events {
			if !isOf(event.Kv.Key, unused, "unused") {
				continue
			}
			if revisions[event.Type.String()] == nil {
				revisions[event.Type.String()] = map[int64]int{}
			}
			revisions[event.Type.String()][event.Kv.ModRevision]++
		}
		if seen = response.Header.Revision; len(response.Events) > 0 {
			seen = max(seen, response.Events[len(response.Events)-1].Kv.ModRevision)
		}
		if len(revisions["DELETE"]) > 0 {
			break
		}
	}
	for _, change := range []string{"PUT", "DELETE"} {
		if got := revisions[change]; len(got) != 1 || slices.Collect(maps.Values(got))[0] != 2 {
			t.Errorf("%s: changes by revision %v, want two in one", change, got)
		}
	}
}

// Whoever creates something in a workspace that somebody else deletes just then is refused, or the workspace waits for
// it. Nothing survives its logical cluster, where nobody would find it.
func TestNothingIsCreatedInAWorkspaceThatGoes(t *testing.T) {
	way := etcdtest.Start(t)
	at := startCatalogued(t, t.TempDir(), way)
	etcd := etcdtest.Client(t, way)
	u := &operator{t, at}
	u.until("root is Ready", func() bool { return at.phase("root") == "Ready" })
	const workspaces = 100
	var names, all []string
	for n := range workspaces {
		names = append(names, fmt.Sprintf("w%d", n))
	}
	u.create(names...)
	for _, name := range names {
		all = append(all, u.ready(name))
	}
	kube, made := at.shard.Clients.Kube, 0
	for n, cluster := range all {
		var creating sync.WaitGroup
		begins, err := make(chan struct{}), error(nil)
		creating.Go(func() { // one after the other, until one is refused
			defer close(begins)
			for begun := false; err == nil; made++ {
				object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "late-"}}
				if _, err = kube.CoreV1().ConfigMaps("default").Create(in(u, cluster), object, metav1.CreateOptions{}); !begun && n%2 == 0 {
					begins <- struct{}{}
				}
				begun = true
			}
		})
		if n%2 == 0 { // some are there already
			<-begins
		}
		u.delete(names[n])
		creating.Wait()
		if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", cluster, err)
		}
		made-- // the one that was refused
	}
	u.until("nothing is left", func() bool {
		stored := must(etcd.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly()))(u)
		return !slices.ContainsFunc(stored.Kvs, func(kv *mvccpb.KeyValue) bool {
			return slices.ContainsFunc(all, func(cluster string) bool { return strings.Contains(string(kv.Key), "/"+cluster+"/") })
		})
	})
	t.Logf("%d were made, and %d refused", made, workspaces)
}

// When the authorities are others than when a workspace was made, the leader stores its ConfigMaps. Whoever watches
// them through a replica that was not restarted yet hears of it.
func TestOtherAuthoritiesAreStored(t *testing.T) {
	way, root := etcdtest.Start(t), t.TempDir()
	at := startCatalogued(t, root, way)
	u := &operator{t, at}
	u.until("root is Ready", func() bool { return at.phase("root") == "Ready" })
	u.create("one")
	cluster := u.ready("one")
	published := at.shard.Clients.Kube.CoreV1().ConfigMaps("default")
	before := must(published.Get(in(u, cluster), clusters.RootCAConfigMap, metav1.GetOptions{}))(u)
	if err := at.stop(t); err != nil {
		t.Fatal(err)
	}

	own, err := os.ReadFile(filepath.Join(root, pkiDirectory, pki.CACertFile))
	if err != nil {
		t.Fatal(err)
	}
	cfg := withController(t, config(t, root), nil)
	cfg.EmbeddedEtcd, cfg.Etcd = nil, way
	cfg.ServiceAccounts.RootCAFile = write(t, filepath.Join(root, "authorities.pem"), string(own)+string(own))
	at = catalogue(t, cfg)
	u = &operator{t, at}
	u.until("the authorities are stored", func() bool {
		now := must(at.shard.Clients.Kube.CoreV1().ConfigMaps("default").Get(in(u, cluster), clusters.RootCAConfigMap, metav1.GetOptions{}))(u)
		return now.UID == before.UID && now.ResourceVersion != before.ResourceVersion && now.Data[clusters.RootCAKey] == string(own)+string(own)
	})
}

// swept returns how many keys the sweeps of the controllers have worked on, and whether one goes on.
func (c *catalogued) swept() (keys map[string]uint64, running bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys = map[string]uint64{}
	for name, r := range c.latest {
		sweep := r.Report().Sweep
		keys[name] = sweep.Returned
		running = running || sweep.Running
	}
	return keys, running
}
