package keys

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// listeners are told of changes. The API server adds its own when it begins to serve.
type listeners struct {
	mu  sync.Mutex
	all []dynamiccertificates.Listener
}

// AddListener implements dynamiccertificates.Notifier.
func (l *listeners) AddListener(one dynamiccertificates.Listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, one)
}

func (l *listeners) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.all {
		one.Enqueue()
	}
}

// pairSource is a certificate with its key that the listener shows. It may be exchanged while connections are open: new
// ones get the new one.
type pairSource struct {
	listeners
	name  string
	names []string // for which it is shown; nil: for all
	pair  atomic.Pointer[keyPair]
}

type keyPair struct{ certPEM, keyPEM []byte }

func (s *pairSource) set(certPEM, keyPEM []byte) error {
	if _, err := tls.X509KeyPair(certPEM, keyPEM); err != nil {
		return fmt.Errorf("the certificate %q is not usable: %w", s.name, err)
	}
	s.pair.Store(&keyPair{certPEM, keyPEM})
	s.tell()
	return nil
}

// Name implements dynamiccertificates.CertKeyContentProvider.
func (s *pairSource) Name() string { return s.name }

// CurrentCertKeyContent implements dynamiccertificates.CertKeyContentProvider.
func (s *pairSource) CurrentCertKeyContent() (certPEM, keyPEM []byte) {
	pair := s.pair.Load()
	return pair.certPEM, pair.keyPEM
}

// SNINames implements dynamiccertificates.SNICertKeyContentProvider.
func (s *pairSource) SNINames() []string { return s.names }

// trust are authorities for client certificates. They may be exchanged at any time, and count from the next request on,
// also on connections that are open.
type trust struct {
	listeners
	content atomic.Pointer[dynamiccertificates.CAContentProvider]
}

func (t *trust) set(caPEM []byte) error {
	content, err := dynamiccertificates.NewStaticCAContent("client-ca", caPEM)
	if err != nil {
		return fmt.Errorf("the shard's certificate authority is not usable: %w", err)
	}
	t.content.Store(&content)
	t.tell()
	return nil
}

// Name implements dynamiccertificates.CAContentProvider.
func (t *trust) Name() string { return "client-ca" }

// CurrentCABundleContent implements dynamiccertificates.CAContentProvider.
func (t *trust) CurrentCABundleContent() []byte { return (*t.content.Load()).CurrentCABundleContent() }

// VerifyOptions implements dynamiccertificates.CAContentProvider.
func (t *trust) VerifyOptions() (x509.VerifyOptions, bool) {
	return (*t.content.Load()).VerifyOptions()
}

var (
	_ dynamiccertificates.SNICertKeyContentProvider = (*pairSource)(nil)
	_ dynamiccertificates.CAContentProvider         = (*trust)(nil)
)
