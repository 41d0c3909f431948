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

// EnsureMutual returns a key and its certificate for connections over loopback whose two sides are the same user: server
// and client show the same certificate, and trust no other. Whoever can read the directory is let in, and nobody else. The
// files are made if they are missing; a program that is not ours gives the certificate as its authority, too.
//
// The shard's authority would not do: users whose certificates it has signed must not get to what is behind the API server.
func EnsureMutual(directory string) (tls.Certificate, error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return tls.Certificate{}, fmt.Errorf("cannot create a directory for keys: %w", err)
	}
	if err := refuseWritable(directory); err != nil {
		return tls.Certificate{}, err
	}
	unlock, err := lock(filepath.Join(directory, "lock"))
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
		// The certificate last: without it a key is the remainder of a start that was cut short.
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
