// Package pki makes and keeps what all replicas of a shard must share to be one API server for their clients: the
// certificate authority, the admin's client certificate, and the kubeconfig with both.
//
// Keys are made once. Replicas that start at the same time in the same directory end up with the same keys. A crash
// leaves nothing that a later start would take for complete. Files are readable by their owner only. Keys that others
// may read are refused, and so is a directory that others may write to.
//
// Each process has a serving certificate of its own, signed by the authority. It is kept in memory: its names depend on
// the process's flags, and its key is never shared.
package pki

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Names of the files in the directory.
const (
	CACertFile    = "ca.crt"
	CAKeyFile     = "ca.key"
	AdminCertFile = "admin.crt"
	AdminKeyFile  = "admin.key"
)

// Open reads the directory, which must have the key of an authority. Unlike Ensure it makes nothing.
func Open(directory string) (*Bundle, error) {
	if key := filepath.Join(directory, CAKeyFile); !exists(key) {
		return nil, fmt.Errorf("there is no %s: give --pki-directory, the directory pki/ of the root shard", key)
	}
	return Ensure(directory)
}

// ErrNoKey says that something can be signed only where the key of the authority is.
var ErrNoKey = errors.New("the key of the certificate authority is elsewhere")

// Bundle is the content of the directory.
type Bundle struct {
	// CAPEM is the authority's certificate.
	CAPEM []byte
	// AdminCertPEM and AdminKeyPEM authenticate a member of system:masters.
	AdminCertPEM, AdminKeyPEM []byte

	directory string
	ca        *x509.Certificate
	// nil if the operator keeps the key elsewhere, and on all shards but the root shard
	caKey     crypto.Signer
	authority *Authority          // nil unless Join has made this a member's directory
	trusted   []*x509.Certificate // ca, and the other authority while one is rolled
	roll      *roll               // nil if the authority was never rolled
}

// Ensure returns what the directory holds, and makes what is missing. Operators may put files of their own there before
// the first start. With a ca.crt and no ca.key, nothing can be signed here.
func Ensure(directory string) (*Bundle, error) {
	unlock, err := makeAndLock(directory)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := finishReplacing(directory); err != nil {
		return nil, err
	}
	b := &Bundle{directory: directory}
	if err := b.makeCA(); err != nil {
		return nil, err
	}
	if err := b.readCA(); err != nil {
		return nil, err
	}
	if err := b.loadAuthority(); err != nil {
		return nil, err
	}
	if b.authority != nil && !exists(b.file(AdminCertFile)) {
		return b, nil // the installation's administrators are this shard's, too
	}
	if err := b.makeAdmin(); err != nil {
		return nil, err
	}
	return b, b.readAdmin()
}

// Read returns what the directory holds. Unlike Ensure it makes nothing: a directory in which something is missing is
// just being copied.
func Read(directory string) (*Bundle, error) {
	b, unlock, err := openLocked(directory)
	if err != nil {
		return nil, err
	}
	unlock()
	return b, nil
}

// read reads everything. The caller holds the directory's lock.
func (b *Bundle) read() error {
	if err := finishReplacing(b.directory); err != nil {
		return err
	}
	if err := b.readCA(); err != nil {
		return err
	}
	if err := b.loadAuthority(); err != nil {
		return err
	}
	if b.authority != nil && !exists(b.file(AdminCertFile)) {
		return nil
	}
	return b.readAdmin()
}

// ServingCert issues a certificate for a server that clients reach under the given names and addresses.
func (b *Bundle) ServingCert(names []string, addresses []net.IP) (certPEM, keyPEM []byte, err error) {
	if b.authority != nil {
		return b.authority.Serve(names, addresses)
	}
	if b.caKey == nil {
		return nil, nil, b.noKeyError("a serving certificate", "give --tls-cert-file and --tls-private-key-file")
	}
	return issue(b.ca, b.caKey, servingTemplate(names, addresses))
}

// makeCA makes the authority if there is none. It writes the certificate last: a key without one is left over from a
// start that was cut short.
func (b *Bundle) makeCA() error {
	certFile, keyFile := b.file(CACertFile), b.file(CAKeyFile)
	if !exists(certFile) {
		if admin := b.file(AdminCertFile); exists(admin) {
			return fmt.Errorf("%s is missing, and another one would not fit %s: restore it from another replica or a backup; for a new shard remove the directory %s, and all is made anew", certFile, admin, b.directory)
		}
		certPEM, keyPEM, err := newAuthority()
		if err != nil {
			return err
		}
		return writeAll(file{keyFile, keyPEM}, file{certFile, certPEM})
	}
	return nil
}

// readCA reads the authority, and how far it is rolled.
func (b *Bundle) readCA() error {
	certFile := b.file(CACertFile)
	var err error
	if b.CAPEM, err = os.ReadFile(certFile); err != nil {
		return fmt.Errorf("cannot read the certificate authority: %w", err)
	}
	r, err := b.readRoll()
	if err != nil {
		return err
	}
	if err := b.useCA(r); err != nil {
		return fmt.Errorf("%s: %w: copy all files of the directory from the same replica", certFile, err)
	}
	return b.readCAKey()
}

// useCA sets what follows from the authority's certificates, and from how far it is rolled (nil: it never was).
func (b *Bundle) useCA(r *roll) error {
	certs, err := cert.ParseCertsPEM(b.CAPEM)
	if err != nil {
		return fmt.Errorf("it holds no certificate of the authority: %w", err)
	}
	b.ca, b.trusted = certs[0], certs[:1]
	if r == nil {
		return nil
	}
	if err := r.verify(); err != nil {
		return fmt.Errorf("the authority is rolled: %w", err)
	}
	if !bytes.Equal(bytes.TrimSpace(b.CAPEM), bytes.TrimSpace(r.trusted())) {
		return errors.New("the authorities and the proof of their roll are of different steps")
	}
	b.roll = r
	if b.isRolling() {
		b.trusted = certs
	}
	return nil
}

// IsMember reports whether Join has made this a member's directory.
func (b *Bundle) IsMember() bool { return b.authority != nil }

// readCAKey reads the key of the authority, if it is here.
func (b *Bundle) readCAKey() error {
	certFile, keyFile := b.file(CACertFile), b.file(CAKeyFile)
	keyPEM, err := readKey(keyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read the certificate authority's key: %w", err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return fmt.Errorf("%s holds no key, restore it from another replica: %w", keyFile, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok || !samePublicKey(signer.Public(), b.ca.PublicKey) {
		return fmt.Errorf("%s is not the key of %s: copy both from the same place", keyFile, certFile)
	}
	b.caKey = signer
	return nil
}

// makeAdmin makes the admin's certificate if there is none. It writes the certificate last, as makeCA does.
func (b *Bundle) makeAdmin() error {
	certFile, keyFile := b.file(AdminCertFile), b.file(AdminKeyFile)
	if !exists(certFile) {
		if b.caKey == nil {
			return b.noKeyError("the admin's certificate "+certFile, "copy the whole directory from another replica")
		}
		certPEM, keyPEM, err := issue(b.ca, b.caKey, adminTemplate())
		if err != nil {
			return err
		}
		return writeAll(file{keyFile, keyPEM}, file{certFile, certPEM})
	}
	return nil
}

// readAdmin reads the admin's certificate, which an authority that is trusted here has signed.
func (b *Bundle) readAdmin() error {
	certFile, keyFile := b.file(AdminCertFile), b.file(AdminKeyFile)
	var err error
	if b.AdminCertPEM, err = os.ReadFile(certFile); err != nil {
		return fmt.Errorf("cannot read the admin's certificate: %w", err)
	}
	if b.AdminKeyPEM, err = readKey(keyFile); err != nil {
		return fmt.Errorf("cannot read the admin's key: %w", err)
	}
	certs, err := cert.ParseCertsPEM(b.AdminCertPEM)
	if err != nil {
		return fmt.Errorf("%s holds no certificate, remove it and its key to have them made again: %w", certFile, err)
	}
	if err := b.checkSigned(certs[0]); err != nil {
		return fmt.Errorf("%s is not signed by %s, remove it and its key to have them made again: %w", certFile, b.file(CACertFile), err)
	}
	return nil
}

// checkSigned returns an error if no authority that is trusted here has signed a certificate.
func (b *Bundle) checkSigned(c *x509.Certificate) (err error) {
	for _, ca := range b.trusted {
		if err = c.CheckSignatureFrom(ca); err == nil {
			return nil
		}
	}
	return err
}

// Trusted returns the authorities whose certificates are accepted: the one that signs, and the other one while one is
// rolled.
func (b *Bundle) Trusted() []*x509.Certificate { return b.trusted }

// CA returns the certificate of the authority that signs.
func (b *Bundle) CA() *x509.Certificate { return b.ca }

// loadAuthority reads what Join has written, if it has.
func (b *Bundle) loadAuthority() error {
	certPEM, err := os.ReadFile(b.file(MemberCertFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read the certificate of a member: %w", err)
	}
	keyPEM, err := readKey(b.file(MemberKeyFile))
	if err != nil {
		return fmt.Errorf("cannot read the key of a member: %w", err)
	}
	if b.authority, err = LoadAuthority(certPEM, keyPEM); err != nil {
		return fmt.Errorf("%s and %s: give the membership again, and they are made anew: %w", b.file(MemberCertFile), b.file(MemberKeyFile), err)
	}
	if err := b.authority.certificate.CheckSignatureFrom(b.ca); err != nil {
		return fmt.Errorf("%s is not signed by %s, give the membership again: %w", b.file(MemberCertFile), b.file(CACertFile), err)
	}
	return nil
}

// Authority returns the authority of the shard with which it calls other members. If the directory is that of no
// member, the key of the installation's authority signs a new one, which is never on disk: every process of the root
// shard has its own.
func (b *Bundle) Authority(shard string) (*Authority, error) {
	if b.authority != nil {
		if b.authority.Member != (Member{KindShard, shard}) {
			return nil, fmt.Errorf("%s is that of %s, and not of shard %s: give --shard-name=%s, or another --root-directory",
				b.file(MemberCertFile), b.authority.Member, shard, b.authority.Member.Name)
		}
		return b.authority, nil
	}
	certPEM, keyPEM, err := b.NewAuthority(Member{KindShard, shard})
	if err != nil {
		return nil, err
	}
	return LoadAuthority(certPEM, keyPEM)
}

func (b *Bundle) file(name string) string { return filepath.Join(b.directory, name) }

func (b *Bundle) noKeyError(what, advice string) error {
	return fmt.Errorf("%w: cannot sign %s without %s: %s", ErrNoKey, what, b.file(CAKeyFile), advice)
}
