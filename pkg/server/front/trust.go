package front

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"

	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

// trust is whose client certificates a front accepts: the installation's authority's, and those of the operator's file.
// The file is read for each new connection, and each minute for an open one. All methods may be called at any time on
// any goroutine.
type trust struct {
	authority func() []byte // the installation's, in PEM
	file      string        // empty: none

	mu sync.Mutex
	// of and content are what authority and file had, that pool has.
	of      []byte
	content string
	pool    *x509.CertPool
	refused string // why the file cannot be used, as it was told
}

func newTrust(authority func() []byte, file string) (*trust, error) {
	t := &trust{authority: authority, file: file}
	if file == "" {
		return t, t.use("")
	}
	content, err := os.ReadFile(file)
	if err == nil {
		err = t.use(string(content))
	}
	if err != nil {
		return nil, fmt.Errorf("--client-ca-file: %w", err)
	}
	return t, nil
}

// use trusts what the content of the file says. The caller holds mu, or is alone.
func (t *trust) use(content string) error {
	pool, of := x509.NewCertPool(), t.authority()
	if !pool.AppendCertsFromPEM(of) {
		return errors.New("the membership has no certificate of the installation's authority")
	}
	if t.file != "" {
		further, err := cert.ParseCertsPEM([]byte(content))
		if err != nil {
			return fmt.Errorf("%s: %w", t.file, err)
		}
		for _, c := range further {
			pool.AddCert(c)
		}
	}
	t.of, t.content, t.pool, t.refused = of, content, pool, ""
	return nil
}

// now returns whom the front trusts now. A file that cannot be used changes nothing, and is told of once.
func (t *trust) now(ctx context.Context) *x509.CertPool {
	t.mu.Lock() // also while the file is read: what was read first must not replace what was read later
	defer t.mu.Unlock()
	content, err := []byte(nil), error(nil)
	if t.file != "" {
		content, err = os.ReadFile(t.file)
	}
	switch changed := !bytes.Equal(t.of, t.authority()); {
	case err == nil && (changed || string(content) != t.content):
		err = t.use(string(content))
	case changed:
		err = errors.Join(err, t.use(t.content))
	}
	if err != nil && err.Error() != t.refused {
		t.refused = err.Error()
		klog.FromContext(ctx).Error(err, "The authorities of users stay as they were: mend --client-ca-file")
	}
	return t.pool
}

// config returns a TLS configuration that asks clients for certificates of those whom the front trusts at that moment.
func (t *trust) config(of *tls.Config) *tls.Config {
	var mu sync.Mutex
	var made *tls.Config
	out := of.Clone()
	out.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		pool := t.now(hello.Context())
		mu.Lock()
		defer mu.Unlock()
		if made == nil || made.ClientCAs != pool {
			made = of.Clone()
			made.ClientCAs = pool
		}
		return made, nil
	}
	return out
}
