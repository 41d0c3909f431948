package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/regent-project/regent/pkg/server/edge"
	"github.com/regent-project/regent/test/etcdtest"
)

// Users create objects as fast as they are answered while their cluster, or their namespace, is deleted. What is in
// etcd was created before the deletion began: whoever empties it then sees all of it.
func TestNothingIsCreatedOnceTheDeletionOfItsPlaceHasBegun(t *testing.T) {
	root := t.TempDir()
	cfg := config(t, root)
	cfg.TokenFile = write(t, filepath.Join(root, "tokens.csv"), "t-root,rita,4,system:masters\n")
	cfg.EmbeddedEtcd, cfg.Etcd = nil, etcdtest.Start(t)
	cfg.Limits = edge.Limits{}
	r := startReplica(t, cfg)
	t.Cleanup(func() {
		if err := r.stop(t); err != nil {
			t.Error(err)
		}
	})
	etcd := etcdtest.Client(t, cfg.Etcd)
	const ofCluster, ofNamespace = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster", "/api/v1/namespaces/there"
	for round := range 20 {
		cluster := fmt.Sprintf("going-%d", round)
		at := []string{ofCluster, ofNamespace}[round%2]
		r.createCluster(t, cluster)
		r.send(t, http.MethodPatch, cluster, ofCluster, `{"metadata":{"finalizers":["example.com/stays"]}}`)
		r.send(t, http.MethodPatch, cluster, ofCluster+"/status", `{"status":{"phase":"Ready"}}`)
		r.send(t, http.MethodPost, cluster, "/api/v1/namespaces", `{"metadata":{"name":"there","finalizers":["example.com/stays"]}}`)
		var users sync.WaitGroup
		begun := make(chan struct{}, 4)
		for user := range cap(begun) {
			users.Go(func() {
				for n := 0; ; n++ {
					code, answer := r.try(t.Context(), http.MethodPost, cluster, "/api/v1/namespaces/there/configmaps",
						fmt.Sprintf(`{"metadata":{"name":"of-%d-%d"}}`, user, n))
					if n == 10 {
						begun <- struct{}{}
					}
					if code == http.StatusForbidden && n >= 10 {
						return
					}
					if code != http.StatusCreated {
						t.Errorf("creation %d is answered with %d: %s", n, code, answer)
						begun <- struct{}{}
						return
					}
				}
			})
		}
		for range cap(begun) {
			<-begun
		}
		code, answer := r.try(t.Context(), http.MethodDelete, cluster, at, "")
		users.Wait()
		var going metav1.PartialObjectMetadata
		if err := json.Unmarshal([]byte(answer), &going); err != nil || going.DeletionTimestamp == nil {
			t.Fatalf("the deletion is answered with %d: %s", code, answer)
		}
		deleted, err := strconv.ParseInt(going.ResourceVersion, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		stored, err := etcd.Get(t.Context(), "/registry/core/configmaps/"+cluster+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			t.Fatal(err)
		}
		if stored.Count < 40 {
			t.Errorf("%d objects are stored: this shows nothing", stored.Count)
		}
		for _, kv := range stored.Kvs {
			if kv.CreateRevision > deleted {
				t.Errorf("%s was created at revision %d, and the deletion began at %d", kv.Key, kv.CreateRevision, deleted)
			}
		}
	}
}
