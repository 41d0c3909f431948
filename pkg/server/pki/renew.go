package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
)

// What Renew has done, or would do, with a certificate.
const (
	Renewed = "renewed"
	Kept    = "kept"
	// Elsewhere is for certificates that expire, too, but that Renew cannot make: Advice says who can.
	Elsewhere = "elsewhere"
)

// Certificate is one in the directory.
type Certificate struct {
	File     string    `json:"file"`
	Subject  string    `json:"subject"`
	NotAfter time.Time `json:"notAfter"`
	// Action is one of the constants above. Then NotAfter is that of the new certificate, if there is one.
	Action string `json:"action"`
	// Advice is how to renew a certificate that Renew does not.
	Advice string `json:"advice,omitempty"`
}

// Renewal says what to renew.
type Renewal struct {
	// Kubeconfig is the file that has the administrator's certificate, too. It is left alone if it is absent.
	Kubeconfig string
	// Before leaves certificates as they are that expire later than after this time. 0: all are renewed.
	Before time.Duration
	// DryRun changes nothing.
	DryRun bool
}

// Renew makes the certificates in the directory anew that expire, with new keys. The old ones stay until the new ones
// are complete, and after a crash each certificate has its key. Old certificates go on being accepted: only the end of
// the authority that signed them ends them.
func Renew(directory string, r Renewal) ([]Certificate, error) {
	b, unlock, err := openLocked(directory)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var out []Certificate
	for _, one := range []struct{ file, advice string }{
		{CACertFile, "roll the authority: regent pki roll begin"},
		{MemberCertFile, "have a new membership made: regent shard add --renew"},
		{AdminCertFile, ""},
	} {
		c, err := b.describe(one.file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		described := Certificate{File: b.file(one.file), Subject: c.Subject.String(), NotAfter: c.NotAfter, Action: Kept}
		switch due := r.Before == 0 || time.Until(c.NotAfter) < r.Before; {
		case !due, r.Before == 0 && one.advice != "":
		case one.advice != "":
			described.Action, described.Advice = Elsewhere, one.advice
		default:
			if described.NotAfter, err = b.renewAdmin(r); err != nil {
				return nil, err
			}
			described.Action = Renewed
		}
		out = append(out, described)
	}
	return out, nil
}

// openLocked reads a directory without making anything. Nobody else changes it until unlock.
func openLocked(directory string) (b *Bundle, unlock func(), err error) {
	if !exists(filepath.Join(directory, CACertFile)) && !exists(filepath.Join(directory, redoFile)) {
		return nil, nil, fmt.Errorf("there is no %s: give --root-directory of a replica that was started", filepath.Join(directory, CACertFile))
	}
	if unlock, err = lock(directory); err != nil {
		return nil, nil, err
	}
	b = &Bundle{directory: directory}
	if err := b.read(); err != nil {
		unlock()
		return nil, nil, err
	}
	return b, unlock, nil
}

// describe returns the first certificate in a file.
func (b *Bundle) describe(name string) (*x509.Certificate, error) {
	content, err := os.ReadFile(b.file(name))
	if err != nil {
		return nil, fmt.Errorf("cannot read a certificate: %w", err)
	}
	certs, err := cert.ParseCertsPEM(content)
	if err != nil {
		return nil, fmt.Errorf("%s holds no certificate: %w", b.file(name), err)
	}
	return certs[0], nil
}

// renewAdmin makes the administrator's certificate anew, also in the kubeconfig, and returns when it expires.
func (b *Bundle) renewAdmin(r Renewal) (notAfter time.Time, err error) {
	template := adminTemplate()
	if template.NotAfter.After(b.ca.NotAfter) {
		template.NotAfter = b.ca.NotAfter
	}
	if r.DryRun {
		return template.NotAfter, nil
	}
	if b.caKey == nil {
		return time.Time{}, b.noKeyError("the admin's certificate", "run this where the key is, and copy the directory to the other replicas")
	}
	certPEM, keyPEM, err := issue(b.ca, b.caKey, template)
	if err != nil {
		return time.Time{}, err
	}
	next := *b
	next.AdminCertPEM, next.AdminKeyPEM = certPEM, keyPEM
	files, err := b.replaceAdmin(&next, r.Kubeconfig)
	if err != nil {
		return time.Time{}, err
	}
	return template.NotAfter, replaceTogether(b.directory, files...)
}

// replaceAdmin returns the files that have the administrator's certificate, and the authorities that the administrator
// trusts, as next has them.
func (b *Bundle) replaceAdmin(next *Bundle, kubeconfig string) ([]file, error) {
	files := []file{{b.file(AdminKeyFile), next.AdminKeyPEM}, {b.file(AdminCertFile), next.AdminCertPEM}}
	if kubeconfig == "" || !exists(kubeconfig) {
		return files, nil
	}
	content, err := b.rewriteKubeconfig(kubeconfig, next)
	if err != nil {
		return nil, err
	}
	return append(files, file{kubeconfig, content}), nil
}
