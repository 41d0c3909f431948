package pki

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// Names of the files that EnsureMutual makes.
const (
	MutualCertFile = "mutual.crt"
	MutualKeyFile  = "mutual.key"
)

// EnsureMutual returns a key and its certificate for loopback connections between processes of one user. Server and
// client show the same certificate and trust no other, so whoever can read the directory is let in, and nobody else.
// Missing files are made. Other programs name the certificate as their authority, too.
//
// The shard's authority cannot serve this purpose: users with certificates signed by it must not bypass the API server.
func EnsureMutual(directory string) (tls.Certificate, error) {
	unlock, err := makeAndLock(directory)
	if err != nil {
		return tls.Certificate{}, err
	}
	defer unlock()
	certFile, keyFile := filepath.Join(directory, MutualCertFile), filepath.Join(directory, MutualKeyFile)
	if !exists(certFile) {
		certPEM, keyPEM, err := newMutual()
		if err != nil {
			return tls.Certificate{}, err
		}
		// The certificate is written last: a key without one is left over from a start that was cut short.
		if err := writeAll(file{keyFile, keyPEM}, file{certFile, certPEM}); err != nil {
			return tls.Certificate{}, err
		}
	}
	certPEM, err := os.ReadFile(certFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("cannot read the certificate of the loopback's key: %w", err)
	}
	keyPEM, err := readKey(keyFile)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("cannot read the loopback's key: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s and %s are not a certificate and its key, remove both to have them made again: %w", certFile, keyFile, err)
	}
	return pair, nil
}

func newMutual() (certPEM, keyPEM []byte, err error) {
	template := newTemplate("regent-loopback")
	template.NotAfter = noEnd
	template.DNSNames = []string{"localhost"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return selfSigned(template)
}
