package server

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
	plaintext "k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/regent-project/regent/pkg/server/apis"
	"github.com/regent-project/regent/pkg/server/identity"
	"github.com/regent-project/regent/pkg/server/pki"
	"github.com/regent-project/regent/test/etcdtest"
)

func TestAPrefixBelongsToOneShardAndOneAuthority(t *testing.T) {
	client := etcdClient(t, etcdtest.Start(t))
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
		check := newShardCheck(client, Config{Shard: c.shard, EtcdPrefix: c.prefix, RootDirectory: c.directory}, bundle, plaintext.NewEncryptCheckTransformer())
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

// What a replica has in another shard's etcd is nobody's business: other shards would take what it lacks for deleted.
func TestNoObjectIsServedBeforeTheShardIsKnown(t *testing.T) {
	c := &shardCheck{known: make(chan struct{})}
	held := c.hold(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), apis.Codecs)
	process := identity.InProcess{Leader: "leader", Replica: "replica"}
	all := process.Split(held, held)
	ask := func(info request.RequestInfo, own bool) int {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		if own {
			req.Header.Set("Authorization", "Bearer "+process.Replica)
		}
		w := httptest.NewRecorder()
		all.ServeHTTP(w, req.WithContext(request.WithRequestInfo(req.Context(), &info)))
		return w.Code
	}
	objects := request.RequestInfo{IsResourceRequest: true, Verb: "list", Resource: "workspaces"}
	if got := ask(objects, false); got != http.StatusServiceUnavailable {
		t.Errorf("objects are served with %d before the shard is known", got)
	}
	if got := ask(objects, true); got != http.StatusOK {
		t.Errorf("the process's own requests are answered with %d", got)
	}
	if got := ask(request.RequestInfo{Path: "/metrics"}, false); got != http.StatusOK {
		t.Errorf("metrics are answered with %d", got)
	}
	close(c.known)
	if got := ask(objects, false); got != http.StatusOK {
		t.Errorf("objects are answered with %d once the shard is known", got)
	}
}
