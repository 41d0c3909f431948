package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
)

var eu1 = Member{KindShard, "eu1"}

func newAuthorityOf(t *testing.T, b *Bundle, m Member) *Authority {
	t.Helper()
	certPEM, keyPEM, err := b.NewAuthority(m)
	if err != nil {
		t.Fatal(err)
	}
	a, err := LoadAuthority(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// verified returns the chain that a server that trusts b's authority finds for a certificate.
func verified(b *Bundle, chainPEM []byte, usage x509.ExtKeyUsage) ([]*x509.Certificate, error) {
	certs, err := cert.ParseCertsPEM(chainPEM)
	if err != nil {
		return nil, err
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(b.ca)
	for _, c := range certs[1:] {
		between.AddCert(c)
	}
	chains, err := certs[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{usage}})
	if err != nil {
		return nil, err
	}
	return chains[0], nil
}

func TestAMembersCertificatesNameItToAllWhoTrustTheInstallation(t *testing.T) {
	b := ensure(t, newDirectory(t))
	for _, m := range []Member{eu1, {KindShard, "root"}, {KindFront, "f-1"}} {
		t.Run(m.String(), func(t *testing.T) {
			a := newAuthorityOf(t, b, m)
			if a.Member != m {
				t.Errorf("the authority is that of %v", a.Member)
			}
			calling, _, err := a.Call(time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			serving, key, err := a.Serve([]string{"shard.example"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tls.X509KeyPair(serving, key); err != nil {
				t.Error(err)
			}
			for usage, chainPEM := range map[x509.ExtKeyUsage][]byte{x509.ExtKeyUsageClientAuth: calling, x509.ExtKeyUsageServerAuth: serving} {
				chain, err := verified(b, chainPEM, usage)
				if err != nil {
					t.Fatal(err)
				}
				got, authority, err := MemberOf(chain)
				if err != nil || got != m || !IsAuthority(a.Fingerprint(), authority) || !IsAuthority(Fingerprint(authority), authority) || IsAuthority(a.Fingerprint(), b.ca) {
					t.Errorf("%v, %v, error %v", got, authority.Subject, err)
				}
			}
		})
	}
}

// Whoever holds the key of a shard can sign what it likes, and is that shard all the same.
func TestAMemberCannotBecomeAnybodyElse(t *testing.T) {
	b := ensure(t, newDirectory(t))
	a := newAuthorityOf(t, b, eu1)
	admin, _, err := a.issue(adminTemplate())
	if err != nil {
		t.Fatal(err)
	}
	chain, err := verified(b, admin, x509.ExtKeyUsageClientAuth)
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := MemberOf(chain); got != eu1 || err != nil {
		t.Errorf("an administrator's certificate that eu1 has signed is that of %v (%v)", got, err)
	}

	further := newTemplate(Member{KindShard, "eu2"}.User())
	further.Subject.Organization = []string{KindShard.organization()}
	further.IsCA, further.BasicConstraintsValid, further.KeyUsage = true, true, x509.KeyUsageCertSign
	chainPEM, keyPEM, err := a.issue(further)
	if err != nil {
		t.Fatal(err)
	}
	eu2, err := LoadAuthority(chainPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	calling, _, err := eu2.Call(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if chain, err := verified(b, calling, x509.ExtKeyUsageClientAuth); err == nil {
		t.Errorf("an authority that eu1 has signed is trusted: %v", chain[1].Subject)
	}
}

func TestWhoIsNoMember(t *testing.T) {
	b := ensure(t, newDirectory(t))
	chain, err := verified(b, b.AdminCertPEM, x509.ExtKeyUsageClientAuth)
	if err != nil {
		t.Fatal(err)
	}
	if m, _, err := MemberOf(chain); !errors.Is(err, ErrNoMember) {
		t.Errorf("the admin is %v, error %v", m, err)
	}
	if _, err := LoadAuthority(b.AdminCertPEM, b.AdminKeyPEM); err == nil {
		t.Error("the admin's certificate is taken for an authority")
	}
	other := ensure(t, newDirectory(t))
	calling, _, err := newAuthorityOf(t, other, eu1).Call(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verified(b, calling, x509.ExtKeyUsageClientAuth); err == nil {
		t.Error("a member of another installation is trusted")
	}
}
