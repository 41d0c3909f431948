package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/regent-project/regent/test/e2e/harness"
)

// I15: replicas that do not read what the shard has stored end, or do not begin, with exit code 2, and say which
// versions do. What they had stored is there for a version that reads it.
func TestReplicasEndIfTheShardIsInAFormatThatTheyDoNotReadI15(t *testing.T) {
	t.Parallel()
	etcd := harness.StartEtcd(t)
	shard := harness.NewShard(etcd.URL)
	replicas := []*harness.Replica{shard.Start(t, "a"), shard.Start(t, "b")}
	create(t, replicas, "root", "before")
	awaitReady(t, replicas, "root", "before")

	client, key := etcd.Client(t), "/registry/.shard"
	resp, err := client.Get(t.Context(), key)
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("the shard's record: %v (%v)", resp, err)
	}
	readable := string(resp.Kvs[0].Value)
	newer := strings.Replace(readable, `"format":1,"readable-from":"v0.1.0"`, `"format":99,"readable-from":"v9.0.0"`, 1)
	if newer == readable {
		t.Fatalf("the record names no format: %s", readable)
	}
	put := func(record string) {
		t.Helper()
		if _, err := client.Put(t.Context(), key, record); err != nil {
			t.Fatal(err)
		}
	}
	put(newer)
	late := shard.Launch(t, "late")
	for _, r := range append(replicas, late) {
		if code := r.Wait(); code != 2 {
			t.Errorf("%s ended with %d", r.Name(), code)
		}
		if !strings.Contains(r.Log(), "it is in format 99, which versions from v9.0.0 on read") {
			t.Errorf("%s does not say which versions read the shard:\n%s", r.Name(), r.Log())
		}
	}
	if strings.Contains(late.Log(), "Leading") {
		t.Errorf("one that came later has led:\n%s", late.Log())
	}

	put(readable)
	for _, r := range replicas {
		r.Again()
	}
	awaitReady(t, replicas, "root", "before")
	if status, body := replicas[0].Get("/readyz"); status != http.StatusOK {
		t.Errorf("not ready: %d %s", status, body)
	}
}
