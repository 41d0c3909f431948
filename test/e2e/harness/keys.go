package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
)

// keys are the files by which an etcd's members and clients know each other: an authority, and one certificate for all.
type keys struct{ ca, cert, key string }

func newKeys(t testing.TB) *keys {
	t.Helper()
	directory := t.TempDir()
	k := &keys{ca: filepath.Join(directory, "ca.crt"), cert: filepath.Join(directory, "etcd.crt"), key: filepath.Join(directory, "etcd.key")}
	authority := certificate("e2e etcd authority")
	authority.IsCA, authority.BasicConstraintsValid, authority.KeyUsage = true, true, x509.KeyUsageCertSign
	authorityKey := newKey(t)
	writePEM(t, k.ca, "CERTIFICATE", sign(t, authority, authority, authorityKey, authorityKey))

	leaf, leafKey := certificate("e2e etcd"), newKey(t)
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	leaf.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	writePEM(t, k.cert, "CERTIFICATE", sign(t, leaf, authority, leafKey, authorityKey))
	private, err := x509.MarshalECPrivateKey(leafKey)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, k.key, "EC PRIVATE KEY", private)
	return k
}

// client is the configuration of a client; nil without TLS.
func (k *keys) client(t testing.TB) *tls.Config {
	t.Helper()
	if k == nil {
		return nil
	}
	config, err := transport.TLSInfo{CertFile: k.cert, KeyFile: k.key, TrustedCAFile: k.ca}.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func certificate(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t testing.TB, what, by *x509.Certificate, key, byKey *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, what, by, &key.PublicKey, byKey)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func writePEM(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
