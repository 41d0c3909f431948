package server

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/regent-project/regent/pkg/server/apis"
	"github.com/regent-project/regent/pkg/server/status"
	"github.com/regent-project/regent/test/etcdtest"
)

// hostileValues are what might be stored of a resource, and is no object of it, or says that it is somewhere where
// nothing can be. What looks encrypted is not among them: a replica that lacks a key must not go on without what it
// cannot read.
func hostileValues(apiVersion, kind string) map[string]string {
	object := func(metadata string) string {
		return fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":%s}`, kind, apiVersion, metadata)
	}
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(rand.IntN(256))
	}
	return map[string]string{
		"empty": "", "noise": string(noise), "protobuf": "k8s\x00" + string(noise[:100]), "no-json": "{", "null": "null", "list": "[]", "nothing": "{}",
		"other":   `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"b"}}`,
		"unknown": `{"kind":"Unknown","apiVersion":"nobody.example.com/v9","metadata":{"name":"a"}}`,
		"wrong":   object(`7`), "deep": object(strings.Repeat(`{"a":`, 20000)),
		"placeless":  object(`{"name":"a","namespace":"b"}`),
		"dots":       object(`{"name":"..","namespace":"..","annotations":{"kcp.io/cluster":"root"}}`),
		"slashes":    object(`{"name":"a/../../b","namespace":"/","annotations":{"kcp.io/cluster":"root"}}`),
		"zero":       object(`{"name":"a\u0000b","namespace":"c","annotations":{"kcp.io/cluster":"root"}}`),
		"everywhere": object(`{"name":"a","namespace":"b","annotations":{"kcp.io/cluster":"*"}}`),
		"upwards":    object(`{"name":"a","namespace":"b","annotations":{"kcp.io/cluster":"../.."}}`),
	}
}

// Whatever bytes are below its prefix, each cache of each replica fills, and goes on when they come while it watches.
// Controllers work for everybody (I18).
func TestNothingThatIsStoredKeepsAReplicaFromStartingI18(t *testing.T) {
	way := etcdtest.Start(t)
	root := t.TempDir()
	etcd := etcdtest.Client(t, way)
	kinds := map[string][2]string{"/registry/custom/%s/example.com/Widget/default/": {"example.com/v1", "Widget"}}
	for _, r := range apis.Resources() {
		group, namespace := r.GVR.Group, ""
		if group == "" {
			group = "core"
		}
		if r.Namespaced {
			namespace = "default/"
		}
		kinds["/registry/"+group+"/"+r.GVR.Resource+"/%s/"+namespace] = [2]string{r.GVR.GroupVersion().String(), r.Kind}
	}
	stored := map[string]string{}
	for _, cluster := range []string{"root", "elsewhere", "..", "*"} {
		for below, kind := range kinds {
			for name, value := range hostileValues(kind[0], kind[1]) {
				stored[fmt.Sprintf(below, cluster)+name] = value
			}
		}
	}
	write := func() {
		for key, value := range stored {
			if _, err := etcd.Put(t.Context(), key, value); err != nil {
				t.Fatal(err)
			}
		}
	}
	write()
	for _, name := range []string{"first", "second"} {
		c := startCatalogued(t, root, way) // until it is ready
		u := &operator{t, c}
		u.until("root is Ready", func() bool { return c.phase("root") == "Ready" })
		u.create(name)
		u.ready(name)
		write() // while all is watched
		u.create(name + "-meanwhile")
		u.ready(name + "-meanwhile")
		u.delete(name)
		// those that nothing can be decoded from are of all
		if aside := ask[status.Replica](t, c.replica, status.ReplicaPath).Aside; len(aside) < len(kinds)/2 {
			t.Errorf("it tells of what is set aside of %d resources only", len(aside))
		}
		if err := c.stop(t); err != nil {
			t.Errorf("Run returned %v", err)
		}
	}
	for key := range stored {
		left, err := etcd.Get(t.Context(), key, clientv3.WithCountOnly())
		if err != nil || left.Count != 1 {
			t.Errorf("%s is not in etcd any more: nobody but an administrator decides that (%v)", key, err)
		}
	}
}
