package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// validity is how long certificates in files are valid. Nothing renews them by itself, and the shard would be offline
// when they expire, so they should outlive it. Renew and Roll renew them.
const validity = 10 * 365 * 24 * time.Hour

var (
	// noBeginning is the start of each certificate's validity. If it were now, certificates made by a clock that is
	// ahead would be invalid once that clock is set back.
	noBeginning = time.Unix(0, 0).UTC()
	// noEnd is the end of certificates that never expire (RFC 5280, 4.1.2.5): those whose keys end with the process
	// or never leave this machine. A machine without a clock of its own may make them decades in the past.
	noEnd = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

func newAuthority() (certPEM, keyPEM []byte, err error) { return selfSigned(authorityTemplate()) }

func authorityTemplate() *x509.Certificate {
	template := newTemplate("regent-ca")
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	return template
}

// selfSigned makes a key, and a certificate that the key itself signs.
func selfSigned(template *x509.Certificate) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a key: %w", err)
	}
	return sign(template, template, key, key)
}

// issue makes a key, and a certificate for it that the authority signs.
func issue(ca *x509.Certificate, caKey crypto.Signer, template *x509.Certificate) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a key: %w", err)
	}
	return sign(template, ca, key, caKey)
}

func sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey, parentKey crypto.Signer) (certPEM, keyPEM []byte, err error) {
	if certPEM, err = endorse(template, parent, key.Public(), parentKey); err != nil {
		return nil, nil, err
	}
	keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot encode the key of %s: %w", template.Subject, err)
	}
	return certPEM, keyPEM, nil
}

// endorse signs a certificate for a key.
func endorse(template, parent *x509.Certificate, key crypto.PublicKey, parentKey crypto.Signer) (certPEM []byte, err error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, parentKey)
	if err != nil {
		return nil, fmt.Errorf("cannot sign the certificate of %s: %w", template.Subject, err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("cannot parse the certificate of %s: %w", template.Subject, err)
	}
	return cert.EncodeCertificates(parsed)
}

func adminTemplate() *x509.Certificate {
	template := newTemplate("admin")
	template.Subject.Organization = []string{user.SystemPrivilegedGroup}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return template
}

func servingTemplate(names []string, addresses []net.IP) *x509.Certificate {
	template := newTemplate("regent")
	template.NotAfter = noEnd
	template.DNSNames = names
	template.IPAddresses = addresses
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return template
}

func newTemplate(name string) *x509.Certificate {
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		NotBefore: noBeginning,
		NotAfter:  time.Now().Add(validity).UTC(),
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}
}

func samePublicKey(a, b crypto.PublicKey) bool {
	k, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(b)
}
