package etcdcheck

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/regent-project/regent/pkg/server/format"
	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/test/etcdtest"
)

func TestAPrefixBelongsToOneShardAndOneAuthority(t *testing.T) {
	client := etcdtest.Client(t, etcdtest.Start(t))
	directories := []string{t.TempDir(), t.TempDir()}

	for _, c := range []struct {
		name, shard, prefix string
		directory           string
		names               string // what the error must name; "": it is ours
	}{
		{name: "first", shard: "root", prefix: "/a", directory: directories[0]},
		{name: "another replica", shard: "root", prefix: "/a", directory: directories[0]},
		{name: "another shard", shard: "two", prefix: "/a", directory: directories[0], names: `"root"`},
		{name: "another shard on another prefix", shard: "two", prefix: "/b", directory: directories[0]},
		{name: "another authority", shard: "root", prefix: "/a", directory: directories[1], names: directories[1] + "/pki/{ca.crt"},
	} {
		bundle, err := pki.Ensure(c.directory + "/pki")
		if err != nil {
			t.Fatal(err)
		}
		check := NewShard(client, Config{Shard: c.shard, Prefix: c.prefix, Directory: c.directory + "/pki", Secrets: identity.NewEncryptCheckTransformer(), Formats: format.Ours("this")}, bundle)
		if check.Check(nil) == nil {
			t.Errorf("%s: ready before the record was compared", c.name)
		}
		err = check.Run(t.Context())
		if c.names == "" {
			if err != nil || check.Check(nil) != nil {
				t.Errorf("%s: %v, ready: %v", c.name, err, check.Check(nil))
			}
			continue
		}
		if !errors.Is(err, ErrOtherShard) || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s: got %v, want an error that names %s", c.name, err, c.names)
		}
		if check.Check(nil) == nil {
			t.Errorf("%s: ready", c.name)
		}
	}
}

// The record in etcd follows the authority through a roll, whatever replica comes first, and nobody else's files change
// it.
func TestTheShardsRecordFollowsTheAuthorityThroughARoll(t *testing.T) {
	client := etcdtest.Client(t, etcdtest.Start(t))
	directory := filepath.Join(t.TempDir(), "pki")
	cfg := Config{Shard: "root", Prefix: "/registry", Directory: directory, Secrets: identity.NewEncryptCheckTransformer(), Formats: format.Ours("this")}
	old, err := pki.Ensure(directory)
	if err != nil {
		t.Fatal(err)
	}
	check := func(b *pki.Bundle) error {
		t.Helper()
		return NewShard(client, cfg, b).Run(t.Context())
	}
	roll := func(s pki.Step) *pki.Bundle {
		t.Helper()
		if err := pki.Roll(directory, "", s); err != nil {
			t.Fatal(err)
		}
		b, err := pki.Read(directory)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if err := check(old); err != nil {
		t.Fatal(err)
	}
	begun := roll(pki.Begin)
	switched := roll(pki.Switch)
	finished := roll(pki.Finish)
	stranger, err := pki.Ensure(filepath.Join(t.TempDir(), "pki"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		with    *pki.Bundle
		refused bool
	}{
		{"another shard's files, before", stranger, true},
		{"a replica that knows of the roll", begun, false},
		{"one that does not", old, false},
		{"the first one that signs with the new authority", switched, false},
		{"one that is behind", begun, false},
		{"one that has missed the roll", old, true},
		{"another shard's files, after", stranger, true},
		{"one that is ahead", finished, false},
		{"one that is behind by a step", switched, false},
	} {
		if err := check(c.with); errors.Is(err, ErrOtherShard) != c.refused || err != nil && !c.refused {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := client.Delete(t.Context(), shardKey("/registry")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(check(old), check(finished)); err != nil {
		t.Errorf("an etcd that was restored to before the roll: %v", err)
	}
}
