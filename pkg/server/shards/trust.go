package shards

import (
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

// ClientTLS returns how a member calls one shard, whatever the address. ca is the certificate of the installation's authority, in PEM, and
// authority signs the certificates with which the member calls. fingerprint is as for Verify.
func ClientTLS(ca []byte, authority *pki.Authority, shard, fingerprint string) (*tls.Config, error) {
	trust := x509.NewCertPool()
	if !trust.AppendCertsFromPEM(ca) {
		return nil, errors.New("the installation's authority has no certificate")
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: trust, ServerName: pki.ServerName,
		VerifyConnection:     Verify(shard, fingerprint),
		GetClientCertificate: (&caller{authority: authority}).certificate,
	}, nil
}

// Verify returns a function for tls.Config.VerifyConnection that refuses whoever is not that shard, though the installation's authority trusts it.
// fingerprint is that of the shard's authority, as its Shard object has it. Empty: the shard may have any membership.
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
		if fingerprint != "" && pki.Fingerprint(authority) != fingerprint {
			return fmt.Errorf("shard %s answers with a membership that was replaced: give its replicas the latest one", shard)
		}
		return nil
	}
}

// caller has the certificate with which this process calls others. It renews it.
type caller struct {
	authority *pki.Authority

	mu   sync.Mutex
	made time.Time
	pair *tls.Certificate
}

func (c *caller) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pair != nil && time.Since(c.made) < callRenewal {
		return c.pair, nil
	}
	certPEM, keyPEM, err := c.authority.Call(callValidity)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("the certificate with which this process calls shards is not usable: %w", err)
	}
	c.pair, c.made = &pair, time.Now()
	return c.pair, nil
}
