package regenttest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// User returns a copy of a config of this server, with which its requests are those of a user: with a client
// certificate for that name, and groups. A user may do what RBAC in the logical cluster lets them: at first nothing.
func (s *Server) User(t testing.TB, config *rest.Config, name string, groups ...string) *rest.Config {
	t.Helper()
	if name == "" {
		must(t, errors.New("a User needs a name"))
	}
	cert, key, err := s.sign(pkix.Name{CommonName: name, Organization: groups})
	must(t, err)
	config = rest.CopyConfig(config)
	config.BearerToken, config.BearerTokenFile = "", ""
	config.CertData, config.KeyData, config.CertFile, config.KeyFile = cert, key, "", ""
	return config
}

// sign makes a key, and a certificate of the installation's authority for it.
func (s *Server) sign(subject pkix.Name) (certPEM, keyPEM []byte, err error) {
	authority, err := tls.LoadX509KeyPair(filepath.Join(s.pki(), "ca.crt"), filepath.Join(s.pki(), "ca.key"))
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the authority: %w", err)
	}
	return issue(&x509.Certificate{Subject: subject, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, &authority)
}

// etcdKey writes the key with which an etcd and its replicas prove themselves to each other: the etcd would make it,
// and the replicas need it to start beside it.
func etcdKey(directory string) error {
	cert, key, err := issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "regenttest"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, nil)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(directory, 0o700), os.WriteFile(filepath.Join(directory, "mutual.key"), key, 0o600), os.WriteFile(filepath.Join(directory, "mutual.crt"), cert, 0o600))
}

// issue makes a key, and a certificate for it by an authority; nil: by itself.
func issue(template *x509.Certificate, authority *tls.Certificate) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a key: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, nil, fmt.Errorf("cannot make a serial number: %w", err)
	}
	const validity = 24 * time.Hour
	template.NotBefore, template.NotAfter, template.KeyUsage = time.Now().Add(-time.Hour), time.Now().Add(validity), x509.KeyUsageDigitalSignature
	issuer, signer := template, crypto.PrivateKey(key)
	if authority != nil {
		issuer, signer = authority.Leaf, authority.PrivateKey
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), signer)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot sign a certificate: %w", err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot encode a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), nil
}

// Kubeconfig writes a kubeconfig with what a config of a Server says, for programs that read one, and returns its file.
// It goes with the test.
func Kubeconfig(t testing.TB, config *rest.Config) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "kubeconfig")
	const name = "regenttest"
	must(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, file))
	return file
}
