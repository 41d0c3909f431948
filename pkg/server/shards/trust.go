package shards

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/regent-project/regent/pkg/server/pki"
)

// A certificate with which a member calls others is used for callRenewal, and valid for callValidity.
const callValidity, callRenewal = 24 * time.Hour, 12 * time.Hour

// Verify returns a function for tls.Config.VerifyConnection that refuses whoever is not that shard, though the
// installation's authority trusts it. fingerprint is that of the shard's authority, as its Shard object has it. Empty:
// the shard may have any membership.
func Verify(shard, fingerprint string) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		if len(state.VerifiedChains) == 0 {
			return errors.New("the connection is not verified")
		}
		who, authority, err := pki.MemberOf(state.VerifiedChains[0])
		if err == nil && who != (pki.Member{Kind: pki.KindShard, Name: shard}) {
			err = fmt.Errorf("%s answers", who)
		}
		if err != nil {
			return fmt.Errorf("at the address of shard %s: %w: correct it with regent shard set %s --replica=...", shard, err, shard)
		}
		if fingerprint != "" && !pki.IsAuthority(fingerprint, authority) {
			return fmt.Errorf("shard %s answers with a membership that was replaced: give its replicas the latest one", shard)
		}
		return nil
	}
}

// Keys returns the certificates of the installation's authority, in PEM, and what signs the certificates with which
// this process calls other members. They may be others with each call.
type Keys func() (ca []byte, authority *pki.Authority)

// Caller has what this process calls others with: whom it trusts, and the certificate that it shows. It renews the
// certificate in time, and when the keys change. All methods may be called at any time on any goroutine.
type Caller struct {
	keys Keys

	mu      sync.Mutex
	current *call
}

// call is what this process calls others with for a while. It is not changed.
type call struct {
	ca        []byte
	authority *pki.Authority
	since     time.Time
	trust     *x509.CertPool
	pair      *tls.Certificate
}

// NewCaller returns a Caller with what keys return.
func NewCaller(keys Keys) *Caller { return &Caller{keys: keys} }

// now returns what to call with now. It is another value whenever connections that were made with the one before are to
// be replaced.
func (c *Caller) now() (*call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ca, authority := c.keys()
	if in := c.current; in != nil && in.authority == authority && bytes.Equal(in.ca, ca) && time.Since(in.since) < callRenewal {
		return in, nil
	}
	next, err := newCall(ca, authority)
	if err != nil {
		return nil, err
	}
	c.current = next
	return next, nil
}

func newCall(ca []byte, authority *pki.Authority) (*call, error) {
	trust := x509.NewCertPool()
	if !trust.AppendCertsFromPEM(ca) {
		return nil, errors.New("the installation's authority has no certificate")
	}
	certPEM, keyPEM, err := authority.Call(callValidity)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("the certificate with which this process calls shards is not usable: %w", err)
	}
	return &call{ca: ca, authority: authority, since: time.Now(), trust: trust, pair: &pair}, nil
}

// config returns how to call one shard, whatever the address. fingerprint is as for Verify.
func (c *call) config(shard, fingerprint string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: c.trust, ServerName: pki.ServerName, VerifyConnection: Verify(shard, fingerprint),
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.pair, nil },
	}
}
