package server

import (
	"net/http"
	"testing"

	"github.com/regent-project/regent/pkg/server/edge"
	"github.com/regent-project/regent/pkg/server/status"
)

// What clients ask for counts in the logical cluster for which they ask it.
func TestRequestsCountInTheirLogicalCluster(t *testing.T) {
	cfg := config(t, t.TempDir())
	cfg.Limits = edge.Limits{RequestsInFlight: 16}
	r := startReplica(t, cfg)
	defer func() { _ = r.stop(t) }()
	r.createCluster(t, "busy")
	const namespaces = "/clusters/busy/api/v1/namespaces"
	busy := func() status.RequestCounts {
		t.Helper()
		top := ask[status.Top](t, r, status.TopPath)
		if top.Replica == "" || top.Observed.IsZero() || top.All.Requests == 0 && len(top.Clusters) > 0 {
			t.Fatalf("got %+v", top)
		}
		for _, c := range top.Clusters {
			if c.Cluster == "busy" && !c.Since.IsZero() {
				return c.RequestCounts
			}
		}
		return status.RequestCounts{}
	}
	try := func(verb, path, body string) (code int) {
		r.admin(t).Verb(verb).AbsPath(path).SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(t.Context()).StatusCode(&code)
		return code
	}
	do := func(verb, path, body string, want int) {
		t.Helper()
		if code := try(verb, path, body); code != want {
			t.Fatalf("%s %s: %d, want %d", verb, path, code, want)
		}
	}
	until(t, "the cluster is there", func() bool { return try(http.MethodGet, namespaces, "") == http.StatusOK })
	before := busy()
	for range 3 {
		do(http.MethodGet, namespaces, "", http.StatusOK)
	}
	do(http.MethodPost, namespaces, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`, http.StatusCreated)
	do(http.MethodPost, namespaces, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"NO"}}`, http.StatusUnprocessableEntity)
	if code := try(http.MethodGet, "/clusters/nobody-knows/api/v1/namespaces", ""); code == http.StatusOK {
		t.Error("a cluster that does not exist answers")
	}
	after := busy()
	if after.Requests-before.Requests != 5 || after.Writes-before.Writes != 2 || after.Refused-before.Refused != 1 || after.Failed != before.Failed || after.TooMany != 0 {
		t.Errorf("counted: %+v, then %+v", before, after)
	}
	if after.PlaceSeconds <= before.PlaceSeconds {
		t.Errorf("places were held for %v s, then %v s", before.PlaceSeconds, after.PlaceSeconds)
	}
}
