package detect

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// newKey makes a key, and a certificate that carries it. Nothing else in the certificate counts: peers compare the
// key's fingerprint with that on the Lease.
func newKey() (tls.Certificate, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("cannot make the probe's key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "regent-probe"},
		// no end: RFC 5280
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("cannot make the probe's certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("cannot parse the probe's certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, fingerprintOf(leaf), nil
}

// fingerprintOf returns the SHA-256 of a certificate's public key.
func fingerprintOf(leaf *x509.Certificate) string {
	sum := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// errUntrusted: the process that answered does not have the key that the Lease names.
var errUntrusted = errors.New("another process than the one that the Lease names answers there")

// trusting returns a client's TLS configuration that trusts only the key of that fingerprint.
func trusting(fingerprint string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// No authority signs a key that lives only as long as its process. VerifyConnection is the complete
		// check.
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection pins the key
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 || fingerprintOf(state.PeerCertificates[0]) != fingerprint {
				return errUntrusted
			}
			return nil
		},
	}
}

// credential returns a proof that its sender knows the secret that the replicas share. It is valid only for the process
// of that fingerprint.
func credential(secret []byte, fingerprint string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("regent probe " + fingerprint))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
