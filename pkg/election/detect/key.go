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

// newKey makes a key and a certificate that carries it. The certificate says nothing that anybody believes: peers compare
// the key's fingerprint with that on the Lease.
func newKey() (tls.Certificate, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", fmt.Errorf("cannot make the probe's key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "regent-probe"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // RFC 5280: no end
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

// fingerprintOf is the SHA-256 of a certificate's public key.
func fingerprintOf(leaf *x509.Certificate) string {
	sum := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// errUntrusted is the error of a connection to whoever has not the key that the Lease names.
var errUntrusted = errors.New("this is not the process that the Lease names")

// trusting returns a client's TLS configuration that trusts one key and nothing else.
func trusting(fingerprint string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// No authority vouches for a key that lives as long as a process: the check below is the whole of it.
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection pins the key
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 || fingerprintOf(state.PeerCertificates[0]) != fingerprint {
				return errUntrusted
			}
			return nil
		},
	}
}

// credential proves to the process of that fingerprint, and to no other, that one knows the shard's secret.
func credential(secret []byte, fingerprint string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("regent probe " + fingerprint))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
