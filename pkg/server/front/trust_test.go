package front

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// signer is a certificate authority of users.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newSigner(t *testing.T, name string, by *signer) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		IsCA: by == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if by == nil {
		by = &signer{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, &key.PublicKey, by.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{cert, key}
}

func (s *signer) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert.Raw})
}

func TestUsersOfFurtherAuthoritiesAreAcceptedWhileTheFileSaysSo(t *testing.T) {
	installation, ofUsers, ofOthers := newSigner(t, "installation", nil), newSigner(t, "users", nil), newSigner(t, "others", nil)
	ann, admin := newSigner(t, "ann", ofUsers), newSigner(t, "admin", installation)
	file := filepath.Join(t.TempDir(), "users-ca.crt")
	write := func(content []byte) {
		t.Helper()
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(ofUsers.pem())
	trusted, err := newTrust(installation.pem, file)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name    string
		content []byte
		annIs   bool
	}{
		{"as it began", ofUsers.pem(), true},
		{"with more authorities", append(ofOthers.pem(), ofUsers.pem()...), true},
		{"without that of ann", ofOthers.pem(), false},
		{"what cannot be read changes nothing", []byte("nonsense"), false},
		{"with that of ann again", ofUsers.pem(), true},
		{"nothing changes nothing", nil, true},
	} {
		write(step.content)
		who, err := verify([]*x509.Certificate{ann.cert}, trusted.now(t.Context()))
		if step.annIs && (err != nil || who.GetName() != "ann") || !step.annIs && !errors.Is(err, errForeign) {
			t.Errorf("%s: ann is %v (%v)", step.name, who, err)
		}
		if _, err := verify([]*x509.Certificate{admin.cert}, trusted.now(t.Context())); err != nil {
			t.Errorf("%s: the installation's own users are refused: %v", step.name, err)
		}
	}
	if _, err := newTrust(installation.pem, file+".none"); err == nil {
		t.Error("a file that is not there is no error at the start")
	}
}

// Clients that have several certificates show one that the server says it accepts.
func TestClientsAreToldWhoseCertificatesAreAccepted(t *testing.T) {
	installation, ofUsers := newSigner(t, "installation", nil), newSigner(t, "users", nil)
	file := filepath.Join(t.TempDir(), "users-ca.crt")
	if err := os.WriteFile(file, ofUsers.pem(), 0o600); err != nil {
		t.Fatal(err)
	}
	trusted, err := newTrust(installation.pem, file)
	if err != nil {
		t.Fatal(err)
	}
	server := trusted.config(&tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{installation.cert.Raw}, PrivateKey: installation.key}}, ClientAuth: tls.RequestClientCert,
	})
	accepts := func() (acceptable [][]byte) {
		t.Helper()
		here, there := net.Pipe()
		var talking sync.WaitGroup
		defer talking.Wait()
		defer here.Close()
		done := make(chan error, 1)
		talking.Go(func() { done <- tls.Server(there, server).Handshake() })
		client := tls.Client(here, &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			acceptable = request.AcceptableCAs
			return &tls.Certificate{}, nil
		}})
		talking.Go(func() { _, _ = client.Read(make([]byte, 1)) })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		return acceptable
	}
	has := func(all [][]byte, s *signer) bool {
		for _, subject := range all {
			if bytes.Equal(subject, s.cert.RawSubject) {
				return true
			}
		}
		return false
	}
	if got := accepts(); !has(got, ofUsers) || !has(got, installation) {
		t.Errorf("clients are told %q", got)
	}
	ofOthers := newSigner(t, "others", nil)
	if err := os.WriteFile(file, ofOthers.pem(), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := accepts(); has(got, ofUsers) || !has(got, ofOthers) {
		t.Errorf("after the file has changed clients are told %q", got)
	}
}
