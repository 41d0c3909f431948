package server

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/regent-project/regent/pkg/server/pki"
)

func TestAPrefixBelongsToOneShardAndOneAuthority(t *testing.T) {
	client := etcdClient(t, startEtcd(t))
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
		check := newShardCheck(client, Config{Shard: c.shard, EtcdPrefix: c.prefix, RootDirectory: c.directory}, bundle, identity.NewEncryptCheckTransformer())
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
		if !errors.Is(err, errOtherShard) || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s: got %v, want an error that names %s", c.name, err, c.names)
		}
		if check.Check(nil) == nil {
			t.Errorf("%s: ready", c.name)
		}
	}
}
