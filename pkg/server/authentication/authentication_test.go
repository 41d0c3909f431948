package authentication

import (
	"cmp"
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/regent-project/regent/pkg/server/authentication/issuertest"
)

// server is an issuer that answers on a loopback address.
type server struct {
	*issuertest.Issuer
	authority string
}

func serveIssuer(t testing.TB) *server {
	t.Helper()
	i := &server{Issuer: &issuertest.Issuer{}}
	server := httptest.NewTLSServer(i.Issuer)
	t.Cleanup(server.Close)
	i.URL = server.URL
	i.authority = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	return i
}

// jwt returns an entry of the file for the issuer, with the further lines.
func (i *server) jwt(further string) string {
	return fmt.Sprintf(`- issuer:
    url: %s
    audiences: [regent]
    certificateAuthority: |
      %s
  claimMappings:
    username: {expression: '"oidc:" + claims.sub'}
    groups: {claim: groups, prefix: "oidc:"}
%s`, i.URL, strings.ReplaceAll(i.authority, "\n", "\n      "), further)
}

// token returns a token that is good for an hour, but for what claims say.
func (i *server) token(t *testing.T, claims map[string]any) string {
	t.Helper()
	all := map[string]any{"aud": "regent", "sub": "ann", "exp": time.Now().Add(time.Hour).Unix(), "groups": []string{"dev"}}
	for name, value := range claims {
		all[name] = value
	}
	token, err := i.Token(all)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

const header = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"

// writeFile puts another file in its place, as Kubernetes' volumes do: nobody reads half of it.
func writeFile(t testing.TB, name, content string) string {
	t.Helper()
	if err := os.WriteFile(name+".next", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".next", name); err != nil {
		t.Fatal(err)
	}
	return name
}

// start runs what a file says. stop ends it, and waits; the test's end does so, too.
func start(t testing.TB, cfg Config, content string) (a *Authentication, stop func()) {
	t.Helper()
	if content != "" {
		cfg.File = writeFile(t, cmp.Or(cfg.File, filepath.Join(t.TempDir(), "authentication.yaml")), content)
	}
	cfg.PublicPaths = []string{"/readyz", "/version"}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx) })
	stop = func() {
		cancel()
		running.Wait()
		a.Close()
	}
	t.Cleanup(stop)
	return a, stop
}

// who returns the user of a token and the groups, or why the token is refused.
func (a *Authentication) who(token string) (name string, groups []string, err error) {
	req := httptest.NewRequest(http.MethodGet, "/api", nil)
	req.Header.Set("Authorization", "Bearer "+token)
	var errs []string
	here, asking := a.Methods()
	for _, method := range append(here, asking...) {
		resp, ok, err := method.AuthenticateRequest(req)
		if ok && err == nil {
			return resp.User.GetName(), resp.User.GetGroups(), nil
		}
		errs = append(errs, fmt.Sprint(err))
	}
	return "", nil, fmt.Errorf("refused: %s", errs)
}

func (a *Authentication) mustBe(t *testing.T, token, want string) {
	t.Helper()
	if got, _, err := a.who(token); err != nil || got != want {
		t.Errorf("is %q, %v; want %s", got, err, want)
	}
}

// within waits until done, for at most d, and returns how long it took.
func within(t *testing.T, d time.Duration, what string, done func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !done() {
		if time.Since(began) > d {
			t.Fatalf("%s: not within %v", what, d)
		}
		select {
		case <-t.Context().Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
	return time.Since(began)
}

func TestTokensOfIssuersAreTheirUsers(t *testing.T) {
	issuer, stranger := serveIssuer(t), serveIssuer(t)
	a, _ := start(t, Config{}, header+"jwt:\n"+issuer.jwt(`  claimValidationRules:
  - {expression: 'claims.?team.orValue("a") == "a"', message: team a only}
  userValidationRules:
  - {expression: "!user.username.startsWith('oidc:root')", message: no root}
`))
	hour := time.Now().Add(time.Hour).Unix()
	forged, err := issuertest.Sign(stranger.Keys()[0], issuer.URL, map[string]any{"aud": "regent", "sub": "ann", "exp": hour})
	if err != nil {
		t.Fatal(err)
	}
	unknownKey := stranger.Keys()[0]
	unknownKey.KeyID = "made-up"
	madeUp, err := issuertest.Sign(unknownKey, issuer.URL, map[string]any{"aud": "regent", "sub": "ann", "exp": hour})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		token string
		user  string // empty: refused
	}{
		"good":                        {issuer.token(t, nil), "oidc:ann"},
		"expired":                     {issuer.token(t, map[string]any{"exp": time.Now().Add(-time.Second).Unix()}), ""},
		"not valid yet":               {issuer.token(t, map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}), ""},
		"for somebody else":           {issuer.token(t, map[string]any{"aud": "another"}), ""},
		"refused by a rule of claims": {issuer.token(t, map[string]any{"team": "b"}), ""},
		"refused by a rule of users":  {issuer.token(t, map[string]any{"sub": "root"}), ""},
		"of another issuer":           {stranger.token(t, nil), ""},
		"signed by somebody else":     {forged, ""},
		"of a key that is made up":    {madeUp, ""},
		"groups kept elsewhere": {issuer.token(t, map[string]any{
			"groups": nil, "_claim_names": map[string]string{"groups": "s"}, "_claim_sources": map[string]any{"s": map[string]string{"endpoint": stranger.URL}},
		}), ""},
		"no token at all": {"word", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, groups, err := a.who(c.token)
			if c.user == "" && err == nil {
				t.Fatalf("let in as %q", got)
			}
			if c.user != "" && (err != nil || got != c.user || !slices.Equal(groups, []string{"oidc:dev"})) {
				t.Errorf("is %q of %q, %v; want %s", got, groups, err, c.user)
			}
		})
	}
	if n := stranger.Fetches(); n > 0 {
		t.Errorf("an issuer that the file does not name was asked %d times", n)
	}
}

func TestANewKeyWorksAtOnceAndMadeUpKeysCostOneQuestionASecond(t *testing.T) {
	issuer := serveIssuer(t)
	a, _ := start(t, Config{}, header+"jwt:\n"+issuer.jwt(""))
	a.mustBe(t, issuer.token(t, nil), "oidc:ann")
	issuer.Rotate()
	began := time.Now()
	a.mustBe(t, issuer.token(t, nil), "oidc:ann")
	t.Logf("a token of a new key waited %v", time.Since(began))

	fetches, began := issuer.Fetches(), time.Now()
	strange := issuer.Keys()[0]
	strange.KeyID = "made-up"
	token, err := issuertest.Sign(strange, issuer.URL, map[string]any{"aud": "regent", "sub": "ann"})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 3 * maxWaiting {
		all.Go(func() { _, _, _ = a.who(token) })
	}
	all.Wait()
	if n, most := issuer.Fetches()-fetches, int(time.Since(began)/pause)+2; n > most {
		t.Errorf("%d tokens with a key that is made up cost %d questions in %v", 3*maxWaiting, n, time.Since(began))
	}
}

func TestAFileThatChangesIsInForceWithoutARestart(t *testing.T) {
	issuer, other := serveIssuer(t), serveIssuer(t)
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	a, stop := start(t, Config{File: file}, header+"jwt:\n"+issuer.jwt(""))
	token, others := issuer.token(t, nil), other.token(t, nil)
	a.mustBe(t, token, "oidc:ann")

	writeFile(t, file, header+"jwt:\n- issuer: {}\n") // faulty
	writeFile(t, file, header+"jwt:\n"+issuer.jwt("")+other.jwt(""))
	within(t, 10*time.Second, "the second issuer", func() bool { _, _, err := a.who(others); return err == nil })
	fetches := issuer.Fetches()
	issuer.SetDown(true)
	a.mustBe(t, token, "oidc:ann") // its keys were taken over
	if issuer.Fetches() != fetches {
		t.Error("a token of an issuer that is still the same asked for its keys")
	}

	writeFile(t, file, header+"jwt: nonsense\n")
	writeFile(t, file, header+"jwt:\n"+other.jwt(""))
	took := within(t, 10*time.Second, "the first issuer's end", func() bool { _, _, err := a.who(token); return err != nil })
	t.Logf("an issuer that was taken out of the file is refused after %v", took)
	a.mustBe(t, others, "oidc:ann")

	stop()
	a.mustBe(t, others, "oidc:ann") // requests that the server finishes still know their users
}

func TestAFaultyFileKeepsWhatWasReadBefore(t *testing.T) {
	issuer := serveIssuer(t)
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	a, _ := start(t, Config{File: file}, header+"jwt:\n"+issuer.jwt(""))
	token := issuer.token(t, nil)
	before := failures(t)
	writeFile(t, file, header+"jwt:\n- issuer: {}\n")
	within(t, 10*time.Second, "the failure in the metric", func() bool { return failures(t) > before })
	a.mustBe(t, token, "oidc:ann")
	if got := failures(t); got != before+1 {
		t.Errorf("one faulty content counts as %d failures", got-before)
	}
}

func TestAnonymousUsersGetNoMoreThanThePublicPaths(t *testing.T) {
	for content, want := range map[string]struct {
		err     string
		readyz  bool
		version bool
	}{
		"":                              {readyz: true, version: true},
		"anonymous: {enabled: false}\n": {},
		"anonymous: {enabled: true, conditions: [{path: /version}]}\n":                                                                          {version: true},
		"anonymous: {enabled: true, conditions: [{path: /version}, {path: /readyz}]}\n":                                                         {readyz: true, version: true},
		"anonymous: {enabled: true}\n":                                                                                                          {err: "anonymous.enabled"},
		"anonymous: {enabled: true, conditions: [{path: /api}]}\n":                                                                              {err: "/api is not public"},
		"anonymous: {enabled: false, conditions: [{path: /version}]}\n":                                                                         {err: "anonymous.conditions"},
		"anonymos: {enabled: false}\n":                                                                                                          {err: "unknown field"},
		"jwt: []\njwt: []\n":                                                                                                                    {err: "already set"},
		"jwt:\n- issuer: {url: 'http://a', audiences: [a]}\n  claimMappings: {username: {claim: a, prefix: a}}\n":                               {err: "jwt[0].issuer.url"},
		"jwt:\n- issuer: {url: 'https://own', audiences: [a]}\n  claimMappings: {username: {claim: a, prefix: a}}\n":                            {err: "jwt[0].issuer.url"},
		"jwt:\n- issuer: {url: 'https://a', audiences: [a]}\n  claimMappings: {username: {expression: 'claims.'}}\n":                            {err: "jwt[0].claimMappings"},
		"jwt:\n- issuer: {url: 'https://a', audiences: [a], egressSelectorType: cluster}\n  claimMappings: {username: {claim: a, prefix: a}}\n": {err: "egressSelectorType"},
	} {
		t.Run(content, func(t *testing.T) {
			public := []string{"/readyz", "/version"}
			file := writeFile(t, filepath.Join(t.TempDir(), "f.yaml"), header+content)
			a, err := New(Config{File: file, PublicPaths: public, OwnIssuers: []string{"https://own"}})
			if want.err != "" {
				if err == nil || !strings.Contains(err.Error(), want.err) || !strings.Contains(err.Error(), "--authentication-config") {
					t.Fatalf("error %v, want one about %s", err, want.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for path, want := range map[string]bool{"/readyz": want.readyz, "/version": want.version, "/api": false} {
				_, got, err := a.Anonymous().AuthenticateRequest(httptest.NewRequest(http.MethodGet, path, nil))
				if err != nil || got != want {
					t.Errorf("anonymous on %s: %t, %v; want %t", path, got, err, want)
				}
			}
		})
	}
}
