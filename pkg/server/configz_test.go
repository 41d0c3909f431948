package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	cliflag "k8s.io/component-base/cli/flag"

	"github.com/regent-project/regent/pkg/server/edge"

	"k8s.io/apiserver/pkg/server/flagz"
)

// The z-pages are for operators: they say what is in force, to nobody else, and no secrets.
func TestTheZPagesSayWhatIsInForceToOperators(t *testing.T) {
	cfg := config(t, t.TempDir())
	cfg.Flags = flagz.NamedFlagSetsReader{FlagSets: cliflag.NamedFlagSets{}}
	r := startReplica(t, cfg)
	defer func() { _ = r.stop(t) }()
	for path, says := range map[string]string{"/statusz": "/readyz", "/flagz": "flagz", configzPath: `"leaseDuration"`} {
		if got := r.get(t, path); got != http.StatusUnauthorized {
			t.Errorf("%s, to a stranger: %d, want 401", path, got)
		}
		got := r.ask(t, http.MethodGet, path, r.server.identity.InProcess.Replica)
		if got.status != http.StatusOK || !strings.Contains(got.body, says) {
			t.Errorf("%s: %d %s, want %s", path, got.status, got.body, says)
		}
		for _, secret := range []string{r.server.identity.InProcess.Replica, r.server.identity.InProcess.Leader, "PRIVATE KEY"} {
			if strings.Contains(got.body, secret) {
				t.Errorf("%s tells a secret", path)
			}
		}
	}
	var shown map[string]shownConfig
	if err := json.Unmarshal([]byte(r.ask(t, http.MethodGet, configzPath, r.server.identity.InProcess.Replica).body), &shown); err != nil {
		t.Fatal(err)
	}
	got := shown["regent"]
	if got.Replica != r.server.name || got.Election.Mode != "lease" || got.Election.Detection != "suspect" || got.Election.Fencing != edge.FencingEnforce || got.Limits.RequestTimeout != "1m0s" || got.Policies["default"] != "restart" {
		t.Errorf("got %+v", got)
	}
}

func TestEtcdIsShownWithoutItsPassword(t *testing.T) {
	s := &Server{}
	s.cfg.Etcd.ServerList = []string{"https://root:secret@127.0.0.1:1"}
	if got := s.shownConfig().Etcd.Servers; len(got) != 1 || got[0] != "https://root:xxxxx@127.0.0.1:1" {
		t.Errorf("got %q", got)
	}
}
