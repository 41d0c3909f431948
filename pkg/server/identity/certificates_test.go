package identity

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/util/cert"

	"github.com/regent-project/regent/pkg/server/pki"
)

// exchanged are authorities that are exchanged, as when a shard's are rotated.
type exchanged struct {
	dynamiccertificates.CAContentProvider
}

func TestACertificateIsVerifiedOnceAndAnewWhenItsVerdictMayHaveChanged(t *testing.T) {
	ours, admin := authority(t)
	others, stranger := authority(t)
	trusted := &exchanged{ours}
	c := newCertificates(trusted, x509request.CommonNameUserConversion.User)
	at, asked, upstream := time.Now(), 0, c.upstream
	c.now = func() time.Time { return at }
	c.upstream = authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		asked++
		return upstream.AuthenticateRequest(req)
	})
	for _, step := range []struct {
		what     string
		first    func()
		shown    []*x509.Certificate
		ok       bool
		verified int // how often, of two requests
	}{
		{"nothing is shown", func() {}, nil, false, 0},
		{"a certificate is new", func() {}, admin, true, 1},
		{"it is known", func() {}, admin, true, 0},
		{"another one with it is not the same", func() {}, append(admin[:1:1], stranger...), true, 1},
		{"a stranger's is refused each time", func() {}, stranger, false, 2},
		{"others are trusted", func() { trusted.CAContentProvider = others }, admin, false, 2},
		{"whom they have signed", func() {}, stranger, true, 1},
		{"the former ones are trusted again", func() { trusted.CAContentProvider = ours }, admin, true, 0},
		// upstream has another clock here
		{"the clock is set behind its end", func() { at = admin[0].NotAfter.Add(time.Second) }, admin, true, 2},
		{"the clock is set before its beginning", func() { at = admin[0].NotBefore.Add(-time.Second) }, admin, true, 2},
		{"the clock is right again", func() { at = time.Now() }, admin, true, 0},
	} {
		step.first()
		asked = 0
		for range 2 {
			resp, ok, _ := c.AuthenticateRequest(&http.Request{TLS: &tls.ConnectionState{PeerCertificates: step.shown}})
			if ok != step.ok || ok && resp.User.GetName() != step.shown[0].Subject.CommonName {
				t.Errorf("%s: %+v, %t", step.what, resp, ok)
			}
		}
		if asked != step.verified {
			t.Errorf("%s: of two requests %d were verified, not %d", step.what, asked, step.verified)
		}
	}
	if n := len(c.verified.Keys()); n > 3 {
		t.Errorf("refusals are remembered: %d", n)
	}
}

// authority returns a new authority, and the certificate of an administrator that it has signed.
func authority(t *testing.T) (dynamiccertificates.CAContentProvider, []*x509.Certificate) {
	t.Helper()
	bundle, err := pki.Ensure(filepath.Join(t.TempDir(), "pki"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := dynamiccertificates.NewStaticCAContent("test", bundle.CAPEM)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := cert.ParseCertsPEM(bundle.AdminCertPEM)
	if err != nil {
		t.Fatal(err)
	}
	return ca, admin[:1]
}
