package edge

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/regent-project/regent/pkg/server/apis"
	"github.com/regent-project/regent/pkg/server/identity"
)

// What a replica has in another shard's etcd is nobody's business: other shards would take what it lacks for deleted.
func TestNoObjectIsServedBeforeTheShardIsKnown(t *testing.T) {
	notYet := errors.New("not yet")
	known := healthz.NamedCheck("shard", func(*http.Request) error { return notYet })
	held := withObjectsHeld(known, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), apis.Codecs)
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
	notYet = nil
	if got := ask(objects, false); got != http.StatusOK {
		t.Errorf("objects are answered with %d once the shard is known", got)
	}
}
