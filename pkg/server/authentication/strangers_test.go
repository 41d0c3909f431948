package authentication

import (
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/component-base/metrics/legacyregistry"
)

func TestOnlyTheServerNamesItsOwnUsers(t *testing.T) {
	for name, c := range map[string]struct {
		who user.DefaultInfo
		ok  bool
	}{
		"user":                      {user.DefaultInfo{Name: "ann", Extra: map[string][]string{"example.com/team": {"a"}}}, true},
		"nobody":                    {user.DefaultInfo{}, false},
		"service account":           {user.DefaultInfo{Name: "system:serviceaccount:a:b"}, false},
		"of a cluster":              {user.DefaultInfo{Name: "ann", Extra: map[string][]string{"authentication.kcp.io/cluster-name": {"root"}}}, false},
		"with a warrant":            {user.DefaultInfo{Name: "ann", Extra: map[string][]string{"authorization.kcp.io/warrant": {"x"}}}, false},
		"with a token's identifier": {user.DefaultInfo{Name: "ann", Extra: map[string][]string{"authentication.kubernetes.io/credential-id": {"x"}}}, false},
	} {
		if err := checkStranger(&c.who); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// failures returns how many contents of the file were faulty.
func failures(t *testing.T) (n int) {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "apiserver_authentication_config_controller_automatic_reloads_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == "failure" {
					n += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return n
}

// What a token costs with each request: of earlier ones only the signature is remembered, and only for as long as the
// keys are the same.
func BenchmarkToken(b *testing.B) {
	issuer := serveIssuer(b)
	a, stop := start(b, Config{}, header+"jwt:\n"+issuer.jwt(""))
	defer stop()
	token, err := issuer.Token(map[string]any{"aud": "regent", "sub": "ann", "exp": time.Now().Add(time.Hour).Unix(), "groups": []string{"dev"}})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, _, err := a.who(token); err != nil {
			b.Fatal(err)
		}
	}
}
