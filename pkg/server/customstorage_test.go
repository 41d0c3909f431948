package server

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/regent-project/regent/pkg/server/custom"
	"github.com/regent-project/regent/pkg/server/edge"
	"github.com/regent-project/regent/test/etcdtest"
)

// Custom objects are encrypted and counted as all others. An EncryptionConfiguration has one name for all of them.
func TestCustomObjectsAreEncryptedAndCounted(t *testing.T) {
	const quota, hidden = 12, "what-nobody-may-read-in-etcd"
	root := t.TempDir()
	cfg := config(t, root)
	cfg.EmbeddedEtcd, cfg.Etcd = nil, etcdtest.Start(t)
	cfg.TokenFile = write(t, filepath.Join(root, "tokens.csv"), "t-root,rita,4,system:masters\n")
	cfg.EncryptionConfigFile = write(t, filepath.Join(root, "encryption.yaml"), fmt.Sprintf(
		`{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [{"resources": [%q], "providers": [{"aescbc": {"keys": [{"name": "one", "secret": %q}]}}]}]}`,
		custom.Resource.String(), base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))))
	cfg.Limits = edge.Limits{ObjectsPerCluster: quota}
	r := startReplica(t, cfg)
	t.Cleanup(func() {
		if err := r.stop(t); err != nil {
			t.Error(err)
		}
	})
	for _, cluster := range []string{"own", "other"} {
		r.createCluster(t, cluster)
		r.send(t, http.MethodPatch, cluster, "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster/status", `{"status":{"phase":"Ready"}}`)
		r.send(t, http.MethodPost, cluster, crdsPath, badDefinition("widgets", `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`))
		r.establish(t, cluster, "widgets.example.com", "widgets")
	}
	const path = "/apis/example.com/v1/namespaces/default/widgets"
	add := func(cluster, name string) (int, string) {
		return r.try(t.Context(), http.MethodPost, cluster, path, `{"apiVersion":"example.com/v1","kind":"Kwidgets","metadata":{"name":"`+name+`"},"spec":{"a":"`+hidden+`"}}`)
	}
	until(t, "a custom object is made", func() bool {
		code, _ := add("own", "x")
		return code == http.StatusCreated || code == http.StatusConflict
	})
	stored, err := etcdtest.Client(t, cfg.Etcd).Get(t.Context(), "/registry/custom/own/", clientv3.WithPrefix())
	if err != nil || len(stored.Kvs) != 1 {
		t.Fatalf("%v, %v", stored, err)
	}
	if value := string(stored.Kvs[0].Value); !strings.HasPrefix(value, "k8s:enc:aescbc:v1:one:") || strings.Contains(value, hidden) {
		t.Errorf("%s is stored as %.60q", stored.Kvs[0].Key, value)
	}
	for what, ask := range map[string]string{"get": path + "/x", "list": path, "list of the cache": path + "?resourceVersion=0", "list of etcd": path + "?limit=1", "everywhere": "/apis/example.com/v1/widgets"} {
		if code, body := r.try(t.Context(), http.MethodGet, "own", ask, ""); code != http.StatusOK || !strings.Contains(body, hidden) {
			t.Errorf("%s: %d %.300s", what, code, body)
		}
	}
	made, why := 0, ""
	for n := range 2 * quota {
		code, body := add("own", fmt.Sprint("n", n))
		switch code {
		case http.StatusCreated:
			made++
		case http.StatusForbidden:
			why = body
		default:
			t.Errorf("%d %.300s", code, body)
		}
	}
	if made >= quota || made < quota/2 || !strings.Contains(why, "delete what is not needed") {
		t.Errorf("%d custom objects with a quota of %d that counts all: %.300s", made, quota, why)
	}
	if code, body := r.try(t.Context(), http.MethodPatch, "own", path+"/y?fieldManager=me", `{"apiVersion":"example.com/v1","kind":"Kwidgets","metadata":{"name":"y"}}`); code == http.StatusCreated {
		t.Errorf("one more, applied: %d %.300s", code, body)
	}
	until(t, "one is made in a cluster that is not full", func() bool { code, _ := add("other", "x"); return code == http.StatusCreated })
	if code, body := r.try(t.Context(), http.MethodDelete, "own", path+"/x", ""); code != http.StatusOK {
		t.Errorf("a full cluster: %d %.300s", code, body)
	}
	until(t, "what was deleted made room", func() bool { code, _ := add("own", "z"); return code == http.StatusCreated })
}
