package front

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/regent-project/regent/pkg/clusters"
	"github.com/regent-project/regent/pkg/server/pki"
)

// identity is the user whom the certificate of a connection names. It is verified again every identityAge: a
// certificate may expire meanwhile. So it is when the installation's authority has changed.
type identity struct {
	mu  sync.Mutex
	at  time.Time
	by  []byte // the installation's authorities at that time
	who user.Info
	err error
}

const identityAge = time.Minute

type identityKey struct{}

// withIdentity is for http.Server.ConnContext.
func withIdentity(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, identityKey{}, &identity{})
}

// authenticate returns the user whom a client certificate names, and nil if there is none.
func (f *Front) authenticate(req *http.Request) (user.Info, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	id, ok := req.Context().Value(identityKey{}).(*identity)
	if !ok {
		return nil, errors.New("the connection is not known: report this fault of the front")
	}
	who, err := id.verify(req.Context(), req.TLS, f.trust)
	if errors.Is(err, errForeign) && req.Header.Get("Authorization") != "" {
		return nil, nil // the token counts
	}
	return who, err
}

// errForeign says that a certificate is not of this installation.
var errForeign = errors.New("nobody whom this front trusts has signed the client certificate (the installation's authority, and those in --client-ca-file)")

func (i *identity) verify(ctx context.Context, state *tls.ConnectionState, trust *trust) (user.Info, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if by := trust.authority(); i.at.IsZero() || time.Since(i.at) >= identityAge || !bytes.Equal(by, i.by) {
		i.who, i.err = verify(state.PeerCertificates, trust.now(ctx))
		i.at, i.by = time.Now(), by
	}
	return i.who, i.err
}

// verify returns the user whom a client's certificate names.
func verify(certificates []*x509.Certificate, trust *x509.CertPool) (user.Info, error) {
	between := x509.NewCertPool()
	for _, c := range certificates[1:] {
		between.AddCert(c)
	}
	leaf := certificates[0]
	chains, err := leaf.Verify(x509.VerifyOptions{Roots: trust, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errForeign, err)
	}
	for _, chain := range chains {
		if _, _, err := pki.MemberOf(chain); !errors.Is(err, pki.ErrNoMember) {
			return nil, errors.New("a shard or front has signed this certificate: members ask each other directly, and not through a front")
		}
	}
	if leaf.Subject.CommonName == "" {
		return nil, errors.New("the client certificate names nobody: its common name is empty")
	}
	return &user.DefaultInfo{Name: leaf.Subject.CommonName, Groups: slices.Concat(leaf.Subject.Organization, []string{user.AllAuthenticated})}, nil
}

// identify replaces what a client says of itself by what the front knows. Tokens pass as they are: the shard knows
// whose they are, and is asked to say it. Without either the client is nobody: serve has refused it, and should that
// ever change, shards must not take the front's own rights for the client's.
func identify(header http.Header, who user.Info) {
	for key := range header {
		if strings.HasPrefix(http.CanonicalHeaderKey(key), "X-Remote-") {
			delete(header, key)
		}
	}
	header.Del(clusters.CountedAsHeader)
	if who == nil && header.Get("Authorization") != "" {
		header.Set(clusters.CountedAsHeader, "?")
		return
	}
	if who == nil {
		who = &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	}
	header.Del("Authorization")
	header.Set(clusters.RemoteUserHeader, who.GetName())
	for _, group := range who.GetGroups() {
		header.Add(clusters.RemoteGroupHeader, group)
	}
}
