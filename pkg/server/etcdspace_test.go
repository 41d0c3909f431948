package server

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/regent-project/regent/pkg/server/storage"
	"github.com/regent-project/regent/test/etcdtest"
)

// A full etcd answers reads. /readyz says all the same that it is full, as long as it is.
func TestAFullEtcdIsToldOf(t *testing.T) {
	client, err := storage.NewClient(storage.Config{Transport: etcdtest.Start(t), Prefix: "/registry"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	var quota int64
	space := &etcdSpace{client: client.Etcd(), learned: func(q int64) { quota = q }}
	for _, full := range []bool{false, true, false} {
		alarm := &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE}
		if full {
			alarm.Action = pb.AlarmRequest_ACTIVATE
		}
		if _, err := pb.NewMaintenanceClient(client.Etcd().ActiveConnection()).Alarm(t.Context(), alarm); err != nil {
			t.Fatal(err)
		}
		space.look(t.Context())
		if err := space.Check(nil); errors.Is(err, errEtcdFull) != full {
			t.Errorf("full: %t, and the check says %v", full, err)
		}
	}
	if quota <= 0 {
		t.Errorf("a quota of %d bytes", quota)
	}
}

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
		r.send(t, http.MethodPost, cluster, "/api/v1/namespaces", `{"metadata":{"name":"default"}}`)
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
