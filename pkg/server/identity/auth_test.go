package identity

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/util/cert"

	"github.com/regent-project/regent/pkg/server/access"
	"github.com/regent-project/regent/pkg/server/authentication"
	"github.com/regent-project/regent/pkg/server/pki"
)

func TestWhoIsWho(t *testing.T) {
	directory := t.TempDir()
	bundle, err := pki.Ensure(filepath.Join(directory, "pki"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := dynamiccertificates.NewStaticCAContent("test", bundle.CAPEM)
	if err != nil {
		t.Fatal(err)
	}
	tokenFile := filepath.Join(directory, "tokens.csv")
	if err := os.WriteFile(tokenFile, []byte("b0t,system:serviceaccount:n:bot,4,\nb0ts,bob,5,system:serviceaccounts\nn0ts,bob,6,system:serviceaccounts:n\nt0ken,ann,1,\"dev,ops\"\nf0rged,system:regent:leader,2,system:masters\nj0ined,joe,3,\"dev,system:regent:any\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens := newInProcess()
	configured, err := authentication.New(authentication.Config{PublicPaths: PublicPaths})
	if err != nil {
		t.Fatal(err)
	}
	who, _, err := newAuthenticator(tokens, &members{authorities: ca, root: "root", late: &late{}}, ca, oneAccount{}, tokenFile, configured)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := cert.ParseCertsPEM(bundle.AdminCertPEM)
	if err != nil {
		t.Fatal(err)
	}
	forged := forge(t, filepath.Join(directory, "pki"), LeaderUser)
	for name, c := range map[string]struct {
		path, bearer string
		certificate  bool
		forged       bool   // a certificate of the shard's authority, in the leader's name
		forgedName   string // or in another one
		user, group  string // no user: refused
	}{
		"a certificate counts before a token":   {path: "/api", certificate: true, bearer: "b0t-signed", user: "admin", group: user.SystemPrivilegedGroup},
		"a service account's token":             {path: "/api", bearer: "b0t-signed", user: "system:serviceaccount:n:bot", group: user.AllAuthenticated},
		"admin's certificate":                   {path: "/api", certificate: true, user: "admin", group: user.SystemPrivilegedGroup},
		"operator's token":                      {path: "/api", bearer: "t0ken", user: "ann", group: "ops"},
		"leader":                                {path: "/api", bearer: tokens.Leader, user: LeaderUser, group: user.SystemPrivilegedGroup},
		"replica":                               {path: "/api", bearer: tokens.Replica, user: ReplicaUser, group: user.SystemPrivilegedGroup},
		"anonymous on a public path":            {path: "/readyz", user: user.Anonymous, group: user.AllUnauthenticated},
		"anonymous elsewhere":                   {path: "/api"},
		"wrong token":                           {path: "/api", bearer: "wrong"},
		"wrong token on a public path":          {path: "/readyz", bearer: "wrong"},
		"reserved name of an operator's token":  {path: "/api", bearer: "f0rged"},
		"reserved group of an operator's token": {path: "/api", bearer: "j0ined"},
		"reserved name of a certificate":        {path: "/api", forged: true},
		"a service account's name of a token":   {path: "/api", bearer: "b0t"},
		"service accounts' group of a token":    {path: "/api", bearer: "b0ts"},
		"a namespace's group of a token":        {path: "/api", bearer: "n0ts"},
		"a service account's certificate":       {path: "/api", forgedName: "system:serviceaccount:n:bot"},
		"another process's leader's token":      {path: "/api", bearer: newInProcess().Leader},
	} {
		t.Run(name, func(t *testing.T) {
			req := httptest.NewRequest(http.MethodGet, c.path, nil)
			if c.bearer != "" {
				req.Header.Set("Authorization", "Bearer "+c.bearer)
			}
			if c.forged {
				req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{forged}}
			}
			if c.forgedName != "" {
				req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{forge(t, filepath.Join(directory, "pki"), c.forgedName)}}
			}
			if c.certificate {
				req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{admin[0]}}
			}
			resp, ok, err := who.AuthenticateRequest(req)
			if c.user == "" {
				if ok && err == nil {
					t.Fatalf("let in as %v", resp.User)
				}
				return
			}
			if err != nil || !ok {
				t.Fatalf("refused: %v", err)
			}
			if resp.User.GetName() != c.user || !slices.Contains(resp.User.GetGroups(), c.group) {
				t.Errorf("got %v of %v, want %s of %s", resp.User.GetName(), resp.User.GetGroups(), c.user, c.group)
			}
		})
	}
}

// noAccounts are no service accounts.
type noAccounts struct{}

func (noAccounts) AuthenticateToken(context.Context, string) (*authenticator.Response, bool, error) {
	return nil, false, nil
}

// oneAccount is a service account and its token.
type oneAccount struct{}

func (oneAccount) AuthenticateToken(_ context.Context, token string) (*authenticator.Response, bool, error) {
	if token != "b0t-signed" {
		return nil, false, nil
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: "system:serviceaccount:n:bot"}}, true, nil
}

// forge returns a client certificate that whoever has the authority's key can make.
func forge(t *testing.T, directory, name string) *x509.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(directory, pki.CACertFile), filepath.Join(directory, pki.CAKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name, Organization: []string{user.SystemPrivilegedGroup}},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, pair.Leaf, pair.Leaf.PublicKey, pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func TestOnlyThisProcessMadeItsRequests(t *testing.T) {
	tokens, others := newInProcess(), newInProcess()
	for bearer, want := range map[string]bool{tokens.Leader: true, tokens.Replica: true, others.Leader: false, "": false} {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.Header.Set("Authorization", "Bearer "+bearer)
		if got := tokens.isOwn(req); got != want {
			t.Errorf("made(%q) = %t, want %t", bearer, got, want)
		}
	}
	if tokens.isOwn(httptest.NewRequest(http.MethodGet, "/", nil)) {
		t.Error("a request without a token passes for our own")
	}
}

func TestMastersMayDoAllAndOthersReadThePublicPaths(t *testing.T) {
	a, err := newAuthorizer(&members{own: "root", root: "root"}, &access.Authorizer{})
	if err != nil {
		t.Fatal(err)
	}
	write := authorizer.AttributesRecord{Verb: "create", ResourceRequest: true, Resource: "secrets", Path: "/api/v1/namespaces/x/secrets"}
	read := authorizer.AttributesRecord{Verb: "get", Path: "/readyz"}
	master := &user.DefaultInfo{Name: "m", Groups: []string{user.SystemPrivilegedGroup}}
	other := &user.DefaultInfo{Name: "o", Groups: []string{user.AllAuthenticated}}
	for _, c := range []struct {
		who  user.Info
		what authorizer.AttributesRecord
		want bool
	}{{master, write, true}, {master, read, true}, {other, write, false}, {other, read, true}} {
		c.what.User = c.who
		decision, _, err := a.Authorize(t.Context(), c.what)
		if got := decision == authorizer.DecisionAllow; err != nil || got != c.want {
			t.Errorf("%s %s %s: %t, %v; want %t", c.who.GetName(), c.what.Verb, c.what.Path, got, err, c.want)
		}
	}
}

func write(t testing.TB, name, content string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
