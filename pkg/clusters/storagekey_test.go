package clusters

import (
	"strings"
	"testing"

	"github.com/kcp-dev/logicalcluster/v3"
	"pgregory.net/rapid"
)

const keyPrefix = "/core/configmaps"

func TestStorageKeyAndParseStorageKeyAreInverse(t *testing.T) {
	name := rapid.StringMatching(`[a-z0-9]([-a-z0-9.]{0,8}[a-z0-9])?`)
	cluster := rapid.StringMatching(`(system:)?[a-z]([-a-z0-9]{0,8}[a-z0-9])`)
	rapid.Check(t, func(t *rapid.T) {
		in := logicalcluster.Name(cluster.Draw(t, "cluster"))
		key := keyPrefix
		for _, segment := range rapid.SliceOfN(name, 0, 2).Draw(t, "segments") {
			key += "/" + segment
		}
		stored, err := StorageKey(keyPrefix, key, in)
		if err != nil {
			t.Fatalf("StorageKey(%q, %q): %v", key, in, err)
		}
		gotCluster, gotKey, err := ParseStorageKey(keyPrefix, stored)
		if err != nil || gotCluster != in || gotKey != key {
			t.Fatalf("ParseStorageKey(%q) = %q, %q, %v, want %q, %q", stored, gotCluster, gotKey, err, in, key)
		}
	})
}

func TestStorageKeyRefusesWhatCouldLeadElsewhere(t *testing.T) {
	for _, c := range []struct{ key, cluster string }{
		{keyPrefix + "/a", ""},
		{keyPrefix + "/a", "*"},
		{keyPrefix + "/a", "a/b"},
		{keyPrefix + "/a", ".."},
		{keyPrefix + "/a", "system:/x"},
		{keyPrefix + "/a", "system:"},
		{keyPrefix + "/a", "A"},
		{keyPrefix + "/..", "root"},
		{keyPrefix + "/../secrets", "root"},
		{keyPrefix + "/./a", "root"},
		{keyPrefix + "//a", "root"},
		{keyPrefix + "//", "root"},
		{keyPrefix + "/a//", "root"},
		{keyPrefix + "/a\x00", "root"},
		{keyPrefix + "x/a", "root"},
		{"/core/secrets/a", "root"},
		{"", "root"},
	} {
		if got, err := StorageKey(keyPrefix, c.key, logicalcluster.Name(c.cluster)); err == nil {
			t.Errorf("StorageKey(%q, %q) = %q, want an error", c.key, c.cluster, got)
		}
	}
}

// FuzzStorageKeyStaysInItsCluster: whatever key and cluster are given, what comes out lies below the cluster's prefix
// and belongs to that cluster.
func FuzzStorageKeyStaysInItsCluster(f *testing.F) {
	for _, seed := range [][2]string{
		{keyPrefix + "/default/a", "root"}, {keyPrefix, "system:admin"}, {keyPrefix + "/../x", "root"}, {keyPrefix + "/a/", "a:b"},
		{keyPrefix + "/a", "system:a/b"}, {keyPrefix + "/%2e%2e/b", "root"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, key, cluster string) {
		stored, err := StorageKey(keyPrefix, key, logicalcluster.Name(cluster))
		if err != nil {
			return
		}
		home := keyPrefix + "/" + cluster
		if stored != home && !strings.HasPrefix(stored, home+"/") {
			t.Fatalf("%q in cluster %q is stored at %q", key, cluster, stored)
		}
		if strings.Count(stored, "/") != strings.Count(key, "/")+1 {
			t.Fatalf("%q in cluster %q is stored at %q, which has other segments", key, cluster, stored)
		}
		parsed, rest, err := ParseStorageKey(keyPrefix, stored)
		if err != nil || parsed.String() != cluster || rest != key {
			t.Fatalf("%q reads as cluster %q, key %q, %v; want %q, %q", stored, parsed, rest, err, cluster, key)
		}
	})
}

// FuzzKeysOfTwoClustersNeverMeet checks that no key of one cluster is a key of another, or lies below one, and that
// listing one cluster's prefix finds nothing of the other.
func FuzzKeysOfTwoClustersNeverMeet(f *testing.F) {
	for _, seed := range [][4]string{
		{"root", "/core/configmaps/default/a", "root2", "/core/configmaps/default/a"},
		{"root", "/core/configmaps/", "root-a", "/core/configmaps/default/a"},
		{"system:admin", "/core/configmaps", "system:admin:a", "/core/configmaps/default/a"},
		{"a", "/core/configmaps/b/c", "a:b", "/core/configmaps/c"},
		{"ab", "/core/configmaps/c/d", "a", "/core/configmaps/b/c/d"},
		{"root", "/core/configmaps/../x1/a", "x1", "/core/configmaps/a"},
		{"root", "/core/configmaps//x1/a", "x1", "/core/configmaps/a"},
		{"*", "/core/configmaps/a", "root", "/core/configmaps/a"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	const prefix = "/core/configmaps"
	f.Fuzz(func(t *testing.T, cluster, key, otherCluster, otherKey string) {
		one, err := StorageKey(prefix, key, logicalcluster.Name(cluster))
		if err != nil {
			return
		}
		other, err := StorageKey(prefix, otherKey, logicalcluster.Name(otherCluster))
		if err != nil {
			return
		}
		parsed, rest, err := ParseStorageKey(prefix, one)
		if err != nil || parsed.String() != cluster || rest != key {
			t.Errorf("%q of %q is stored at %q, which is read as %q of %q, %v", key, cluster, one, rest, parsed, err)
		}
		if cluster == otherCluster {
			if (one == other) != (key == otherKey) {
				t.Errorf("%q and %q of %q are stored at %q and %q", key, otherKey, cluster, one, other)
			}
			return
		}
		if one == other || strings.HasPrefix(other, strings.TrimSuffix(one, "/")+"/") {
			t.Errorf("%q of %q is stored at %q; that has %q of %q, at %q", key, cluster, one, otherKey, otherCluster, other)
		}
		if k, l := (Key{Cluster: logicalcluster.Name(cluster), Name: "a"}), (Key{Cluster: logicalcluster.Name(otherCluster), Name: "a"}); k.String() == l.String() {
			t.Errorf("objects of %q and %q have the same key in an index: %q", cluster, otherCluster, k)
		}
	})
}
