package identity

import (
	"crypto/sha256"
	"crypto/x509"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

const (
	// verifiedFor is how long a certificate is not verified again, as long as caches of tokens remember one
	// upstream.
	verifiedFor = 10 * time.Second
	// rememberedCertificates is of how many clients the certificates are remembered.
	rememberedCertificates = 2048
)

// certificates knows requests by their client certificates. Upstream verifies a certificate for each request, which
// takes longer than all else that is done before a get is answered. What it has found is remembered here, for the same
// certificates and the same authorities: who trusts others from now on verifies from now on. Refusals are not
// remembered, so strangers take no room.
type certificates struct {
	upstream    authenticator.Request
	authorities dynamiccertificates.CAContentProvider
	verified    *cache.LRUExpireCache
	now         func() time.Time
}

// newCertificates trusts authorities. What user says must follow from the certificates alone.
func newCertificates(authorities dynamiccertificates.CAContentProvider, user x509request.UserConversionFunc) *certificates {
	return &certificates{
		upstream: x509request.NewDynamic(authorities.VerifyOptions, user), authorities: authorities,
		verified: cache.NewLRUExpireCache(rememberedCertificates), now: time.Now,
	}
}

// verdict is what upstream has found. No response: the certificates are sound, and user had no opinion.
type verdict struct {
	response *authenticator.Response
	ok       bool
}

// AuthenticateRequest implements authenticator.Request.
func (c *certificates) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	shown := req.TLS.PeerCertificates
	key, inTime := c.key(shown), c.inTime(shown)
	if known, ok := c.verified.Get(key); ok && inTime {
		return known.(verdict).response, known.(verdict).ok, nil
	}
	response, ok, err := c.upstream.AuthenticateRequest(req)
	if err == nil && inTime {
		c.verified.Add(key, verdict{response, ok}, verifiedFor)
	}
	return response, ok, err
}

// key is of the certificates that a client shows, in their order, and of whom this replica trusts now.
func (c *certificates) key(shown []*x509.Certificate) (sum [sha256.Size]byte) {
	all := sha256.New()
	for _, one := range shown {
		each := sha256.Sum256(one.Raw)
		all.Write(each[:])
	}
	trusted := sha256.Sum256(c.authorities.CurrentCABundleContent())
	all.Write(trusted[:])
	all.Sum(sum[:0])
	return sum
}

// inTime reports whether all that a client shows is valid now: a clock may have been set.
func (c *certificates) inTime(shown []*x509.Certificate) bool {
	now := c.now()
	return !slices.ContainsFunc(shown, func(one *x509.Certificate) bool { return now.Before(one.NotBefore) || now.After(one.NotAfter) })
}

var _ authenticator.Request = (*certificates)(nil)
