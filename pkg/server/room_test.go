package server

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// I18: whatever a cluster stores, there is room for others, although no quota is set.
func TestNoClusterTakesAllOfEtcdsRoom(t *testing.T) {
	const quota, each = 48 << 20, 1_000_000
	root := t.TempDir()
	cfg := config(t, root)
	cfg.EmbeddedEtcd.Quota = quota
	cfg.TokenFile = write(t, filepath.Join(root, "tokens.csv"), "t-root,rita,4,system:masters\n")
	r := startReplica(t, cfg)
	defer func() {
		if err := r.stop(t); err != nil {
			t.Errorf("Run returned %v", err)
		}
	}()
	r.untilReady(t)
	until(t, "the room is known", func() bool { return r.metric(t, "regent_etcd_quota_bytes") == quota })
	store := func(cluster string, n int) (code int, body string) {
		r.createCluster(t, cluster)
		r.send(t, http.MethodPatch, cluster, "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster/status", `{"status":{"phase":"Ready"}}`)
		until(t, "the namespace is there", func() bool {
			code, _ := r.try(t.Context(), http.MethodPost, cluster, "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"small"}}`)
			return code == http.StatusCreated
		})
		for i := range n {
			object := fmt.Sprintf(`{"metadata":{"name":"%d"},"data":{"a":%q}}`, i, strings.Repeat("x", each))
			if code, body = r.try(t.Context(), http.MethodPost, cluster, "/api/v1/namespaces/default/configmaps", object); code != http.StatusCreated {
				return code, fmt.Sprintf("after %d MB: %s", i, body)
			}
		}
		return code, body
	}
	if code, body := store("greedy", quota/each); code != http.StatusForbidden || !strings.Contains(body, "etcd has room for") {
		t.Errorf("a cluster that stores as much as it can: %d %.300s", code, body)
	}
	if code, body := store("modest", 3); code != http.StatusCreated {
		t.Errorf("another cluster beside it: %d %.300s", code, body)
	}
}
