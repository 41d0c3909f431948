package storage

import (
	"strconv"
	"testing"
)

// A watch of a logical cluster that has moved goes on if its client knows all that had changed, and nothing of what an
// etcd told that was restored since.
func TestOnlyAWatchThatHasMissedNothingGoesOn(t *testing.T) {
	t.Parallel()
	const epoch = 7
	r := Resume{Epoch: epoch, Since: 100, Last: map[string]int64{"core/configmaps": 150}, Until: 200, Start: 30}
	version := func(of, revision int64) string { return strconv.FormatInt(of<<revisionBits|revision, 10) }
	for name, tc := range map[string]struct {
		resource, version string
		goesOn            bool
	}{
		"knows the last change":                     {"core/configmaps", version(epoch, 150), true},
		"does not know the last change":             {"core/configmaps", version(epoch, 149), false},
		"of what has not changed lately":            {"core/secrets", version(epoch, 100), true},
		"of what may have changed":                  {"core/secrets", version(epoch, 99), false},
		"has heard how far etcd was as it left":     {"core/configmaps", version(epoch, 200+1000), true},
		"has heard an etcd that was restored since": {"core/configmaps", version(epoch, 200+1_000_000_000), false},
		"is of the epoch before":                    {"core/configmaps", version(epoch-1, 150), false},
		"is of this shard":                          {"core/configmaps", version(epoch+1, 150), false},
		"knows nothing":                             {"core/configmaps", "", false},
		"knows what no server says":                 {"core/configmaps", "x", false},
	} {
		from, ok := r.from(tc.resource, tc.version)
		if ok != tc.goesOn || ok && from != "30" {
			t.Errorf("a watch that %s goes on from %q, %t", name, from, ok)
		}
	}
	r.Until = 0 // whoever moved it was older
	if _, ok := r.from("core/configmaps", version(epoch, 150)); !ok {
		t.Error("a watch ends, because an older command moved its cluster")
	}
	r.Start = 0
	if _, ok := r.from("core/configmaps", version(epoch, 150)); ok {
		t.Error("a watch goes on, though its cluster has come from nowhere")
	}
}
