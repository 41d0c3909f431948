package pki

import (
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Kind says what a member of an installation is.
type Kind string

const (
	// KindShard is a shard: it reads what other shards have assigned to it.
	KindShard Kind = "shard"
	// KindFront is a front: it finds logical clusters, and forwards requests of users, whose names it tells.
	KindFront Kind = "front"
)

// Member is a shard or a front of an installation.
type Member struct {
	Kind Kind
	Name string
}

// organization returns the group of all members of a kind. Its prefix is reserved: no other certificate may have such a
// group.
func (k Kind) organization() string { return "system:regent:" + string(k) + "s" }

// User returns the name under which a member calls others, and Group the group of all of its kind.
func (m Member) User() string  { return "system:regent:" + string(m.Kind) + ":" + m.Name }
func (m Member) Group() string { return m.Kind.organization() }

// String returns the member in words, as in "shard eu1".
func (m Member) String() string { return string(m.Kind) + " " + m.Name }

// Authority signs the certificates of one member. The installation's authority has signed the Authority's own
// certificate. So a member renews its certificates by itself, and no certificate that it signs makes it anybody else:
// see MemberOf.
type Authority struct {
	Member Member

	certificate *x509.Certificate
	certPEM     []byte
	key         crypto.Signer
}

// NewAuthority makes the authority of a member. It needs the key of the installation's authority.
func (b *Bundle) NewAuthority(m Member) (certPEM, keyPEM []byte, err error) {
	if b.caKey == nil {
		return nil, nil, b.noKeyError("the certificate of "+m.String(), "run this where that key is")
	}
	return issue(b.ca, b.caKey, memberTemplate(m))
}

func memberTemplate(m Member) *x509.Certificate {
	template := newTemplate(m.User())
	template.Subject.Organization = []string{m.Group()}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.MaxPathLenZero = true // it signs no further authorities
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	return template
}

// LoadAuthority reads an authority that NewAuthority has made.
func LoadAuthority(certPEM, keyPEM []byte) (*Authority, error) {
	certs, err := cert.ParseCertsPEM(certPEM)
	if err != nil {
		return nil, fmt.Errorf("cannot read the certificate of a member: %w", err)
	}
	member, err := memberOf(certs[0])
	if err != nil {
		return nil, err
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("cannot read the key of %s: %w", member, err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok || !samePublicKey(key.Public(), certs[0].PublicKey) {
		return nil, fmt.Errorf("the key of %s is another one than its certificate's", member)
	}
	return &Authority{Member: member, certificate: certs[0], certPEM: certPEM, key: key}, nil
}

// ServerName is the name for which members show the certificate of their authority to each other. It is in no DNS:
// members know each other by MemberOf, and not by their addresses.
const ServerName = "member.regent.internal"

// Serve returns a certificate with which the member serves at names and addresses, and under ServerName. The chain is
// complete.
func (a *Authority) Serve(names []string, addresses []net.IP) (certPEM, keyPEM []byte, err error) {
	return a.issue(servingTemplate(append([]string{ServerName}, names...), addresses))
}

// Call returns a certificate with which the member calls other members, valid for some time from now on. The chain is
// complete.
func (a *Authority) Call(valid time.Duration) (certPEM, keyPEM []byte, err error) {
	template := newTemplate(a.Member.User())
	template.Subject.Organization = []string{a.Member.Group()}
	template.NotAfter = time.Now().Add(valid).UTC()
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

func (a *Authority) issue(template *x509.Certificate) (certPEM, keyPEM []byte, err error) {
	if template.NotAfter.After(a.certificate.NotAfter) {
		template.NotAfter = a.certificate.NotAfter
	}
	certPEM, keyPEM, err = issue(a.certificate, a.key, template)
	return slices.Concat(certPEM, a.certPEM), keyPEM, err
}

// Expires returns until when the authority's certificate is valid, and with it all that it signs.
func (a *Authority) Expires() time.Time { return a.certificate.NotAfter }

// Fingerprint returns what tells this authority from all others, also from another one of the same member. It stays the
// same when the installation's authority signs the same key anew.
func (a *Authority) Fingerprint() string { return keyFingerprint(a.certificate) }

// IsAuthority reports whether a fingerprint is that of a member's authority, given its certificate. Earlier versions
// wrote down the fingerprint of the certificate.
func IsAuthority(fingerprint string, authority *x509.Certificate) bool {
	return fingerprint == keyFingerprint(authority) || fingerprint == Fingerprint(authority)
}

// IsAuthority reports whether a fingerprint is that of this authority.
func (a *Authority) IsAuthority(fingerprint string) bool {
	return IsAuthority(fingerprint, a.certificate)
}

// keyFingerprint returns the SHA-256 of a certificate's public key, in hexadecimal digits.
func keyFingerprint(c *x509.Certificate) string {
	return fmt.Sprintf("%x", sha256.Sum256(c.RawSubjectPublicKeyInfo))
}

// ErrNoMember says that a verified chain of certificates is that of no member: the installation's authority itself has
// signed its first certificate.
var ErrNoMember = errors.New("the certificate is not signed by the authority of a shard or front")

// MemberOf returns the member to which a verified chain of certificates belongs, which begins with the leaf, and the
// certificate of its authority. The leaf's own names do not count: a member can sign what it likes. The error is
// ErrNoMember if no member has signed anything in the chain. The caller knows whether the last certificate is that of
// the installation's authority.
func MemberOf(chain []*x509.Certificate) (Member, *x509.Certificate, error) {
	for n, c := range chain {
		m, err := memberOf(c)
		switch {
		case err != nil:
			continue
		case n != 1 || len(chain) != 3:
			return Member{}, nil, fmt.Errorf("the authority of %s is at place %d of %d in the chain of certificates: it signs no further authorities, and shows itself to nobody", m, n+1, len(chain))
		}
		return m, c, nil
	}
	return Member{}, nil, ErrNoMember
}

// memberOf returns the member whose authority a certificate is of.
func memberOf(authority *x509.Certificate) (Member, error) {
	for _, kind := range []Kind{KindShard, KindFront} {
		name, ok := strings.CutPrefix(authority.Subject.CommonName, Member{Kind: kind}.User())
		if ok && name != "" && slices.Equal(authority.Subject.Organization, []string{kind.organization()}) && authority.IsCA {
			return Member{kind, name}, nil
		}
	}
	return Member{}, fmt.Errorf("the certificate of %q is not the authority of a shard or front: have it made by regent shard add", authority.Subject.CommonName)
}

// Fingerprint returns the SHA-256 of a certificate, in hexadecimal digits.
func Fingerprint(c *x509.Certificate) string { return fmt.Sprintf("%x", sha256.Sum256(c.Raw)) }
