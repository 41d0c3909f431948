package status

import (
	"strings"
	"testing"
)

// replica is one that reads formats up to newest; 0: it says nothing of formats.
func replicaOf(name string, stored, newest int) Replica {
	r := Replica{Name: name, Version: "v1.37.2+regent.v0.1.0"}
	if newest > 0 {
		since := []string{"", "v0.1.0", "v0.2.0", "v0.3.0"}
		r.Version = "v1.37.2+regent." + since[newest]
		r.Format = &Format{Stored: stored, ReadableFrom: since[stored], Oldest: 1, Newest: newest, Since: since[newest]}
	}
	return r
}

// I15: a shard goes on to a format once all its replicas are heard and read it, and not before.
func TestAShardGoesOnWhenAllItsReplicasReadTheFormatI15(t *testing.T) {
	silent := Replica{Name: "silent", Fault: "connection refused"}
	for name, c := range map[string]struct {
		replicas []Replica
		from, to int
		heldBy   []string
	}{
		"nothing newer":            {[]Replica{replicaOf("a", 1, 1), replicaOf("b", 1, 1)}, 1, 1, nil},
		"silent, nothing newer":    {[]Replica{replicaOf("a", 1, 1), silent}, 1, 1, nil},
		"before formats were told": {[]Replica{replicaOf("a", 1, 0)}, 1, 1, nil},
		"all read it":              {[]Replica{replicaOf("a", 1, 2), replicaOf("b", 1, 2)}, 1, 2, nil},
		"one does not":             {[]Replica{replicaOf("a", 1, 2), replicaOf("b", 1, 1)}, 1, 2, []string{"root/b runs v1.37.2+regent.v0.1.0"}},
		"one says nothing":         {[]Replica{replicaOf("a", 0, 0), replicaOf("b", 1, 2)}, 1, 2, []string{"root/a runs"}},
		"one does not answer":      {[]Replica{replicaOf("a", 1, 2), silent}, 1, 2, []string{"root/silent does not answer"}},
		"two keep it":              {[]Replica{replicaOf("a", 1, 3), replicaOf("b", 1, 2), silent}, 1, 3, []string{"root/b runs", "root/silent"}},
		"one has read it before":   {[]Replica{replicaOf("a", 2, 2), replicaOf("b", 1, 2)}, 2, 2, nil},
	} {
		u := UpgradeOf(Shard{Name: "root", Replicas: c.replicas})
		if u.From != c.from || u.To != c.to || len(u.HeldBy) != len(c.heldBy) || u.IsFinal() != (c.from == c.to) {
			t.Errorf("%s: %+v", name, u)
			continue
		}
		for n, text := range c.heldBy {
			if !strings.Contains(u.HeldBy[n], text) {
				t.Errorf("%s: %q does not say %q", name, u.HeldBy[n], text)
			}
		}
	}
	if u := UpgradeOf(Shard{Name: "root", Fault: "away"}); u.IsFinal() || len(u.HeldBy) != 1 {
		t.Errorf("a shard that does not answer: %+v", u)
	}
}

func TestTheSkewOfReleasesIsCountedInMinorVersions(t *testing.T) {
	for versions, want := range map[[2]string]int{
		{"v1.37.2+regent.v0.1.0", "v1.38.0+regent.v0.1.7"}:        0,
		{"v1.37.2+regent.v0.1.0", "v1.37.2+regent.v0.2.0-4-gabc"}: 1,
		{"v1.37.2+regent.v0.4.0", "v1.37.2+regent.v0.1.0"}:        3,
		{"v1.37.2+regent.v1.0.0", "v1.37.2+regent.v0.9.0"}:        2,
		{"v1.37.2+regent.3d102b4", "v1.37.2+regent.v0.1.0"}:       -1,
		{"v1.37.2", ""}: -1,
	} {
		if got, known := Skew(versions[0], versions[1]); known != (want >= 0) || known && got != want {
			t.Errorf("%q: %d, %t", versions, got, known)
		}
	}
}
