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
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"github.com/regent-project/regent/pkg/server/reload"
)

// trust is whose client certificates a front accepts: the installation's authority's, and those of the operator's file.
// The file is read for each new connection, and each minute for an open one. All methods may be called at any time on
// any goroutine.
type trust struct {
	authority func() []byte // the installation's, in PEM

	mu   sync.Mutex
	file reload.Follower
	// further are the authorities of the file, and own what authority had, that pool has. own is nil if pool must
	// be made anew.
	further []*x509.Certificate
	own     []byte
	pool    *x509.CertPool
}

// newTrust makes a trust. file may be empty.
func newTrust(authority func() []byte, file string) (*trust, error) {
	t := &trust{authority: authority}
	t.file = reload.Follower{
		AtOnce: true,
		Read: func() (string, error) {
			if file == "" {
				return "", nil
			}
			content, err := os.ReadFile(file)
			return string(content), err
		},
		Use: func(_ context.Context, content string) error {
			further, err := cert.ParseCertsPEM([]byte(content))
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			t.further, t.own = further, nil
			return nil
		},
		Refused: func(ctx context.Context, err error, news bool) {
			if news {
				klog.FromContext(ctx).Error(err, "The authorities of users stay as they were: mend --client-ca-file")
			}
		},
	}
	content, err := t.file.Read()
	if err == nil && file != "" {
		err = t.file.Use(context.Background(), content)
	}
	if err != nil {
		return nil, fmt.Errorf("--client-ca-file: %w", err)
	}
	t.file.InUse = content
	return t, t.gather()
}

// gather makes the pool anew. The caller holds mu, or is alone.
func (t *trust) gather() error {
	pool, own := x509.NewCertPool(), t.authority()
	if !pool.AppendCertsFromPEM(own) {
		return errors.New("the membership has no certificate of the installation's authority")
	}
	for _, c := range t.further {
		pool.AddCert(c)
	}
	t.own, t.pool = own, pool
	return nil
}

// now returns whom the front trusts now. A file that cannot be used changes nothing, and is told of once.
func (t *trust) now(ctx context.Context) *x509.CertPool {
	t.mu.Lock() // also while the file is read: what was read first must not replace what was read later
	defer t.mu.Unlock()
	t.file.Look(ctx, time.Now())
	if !bytes.Equal(t.own, t.authority()) {
		if err := t.gather(); err != nil {
			t.file.Refuse(ctx, err)
		}
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
