package regenttest

import (
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a serial number: %w", err)
	}
	const validity = 24 * time.Hour
	template := &x509.Certificate{
		SerialNumber: serial, Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, authority.Leaf, key.Public(), authority.PrivateKey)
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
