package pki

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// RollFile says how far the authority is rolled, and proves that the old one has named its successor. It stays after
// the roll.
const RollFile = "roll.json"

// Phase is how far the authority is rolled.
//
//	(no roll) --Begin--> begun --Switch--> switched --Finish--> finished
//	    ^                  |                                       |
//	    +-----Abort--------+                Begin of the next roll +--> begun
//
// In phase begun and switched both authorities are trusted. Each step leaves what was good before it good until the
// next step, so replicas and clients may get to know of it one after the other.
type Phase string

// The phases. In PhaseBegun the old authority signs, from PhaseSwitched on the new one does, and in PhaseFinished the
// old one is trusted by nobody.
const (
	PhaseNone     Phase = ""
	PhaseBegun    Phase = "begun"
	PhaseSwitched Phase = "switched"
	PhaseFinished Phase = "finished"
)

// roll is the content of RollFile, and in memberships. Certificates and keys are in PEM.
type roll struct {
	Phase Phase  `json:"phase"`
	From  string `json:"from"`
	To    string `json:"to"`
	// Proof is a certificate for To's name and key that From has signed. It is shown to no client.
	Proof string `json:"proof"`
	// Key is To's. In the directory with the authority's key it is here in PhaseBegun, and in CAKeyFile from then
	// on. Members never get it.
	Key string `json:"key,omitempty"`
}

// identity returns what a shard's record in etcd has of an authority, given in PEM.
func identity(caPEM []byte) string { return fmt.Sprintf("%x", sha256.Sum256(bytes.TrimSpace(caPEM))) }

// Identity returns what tells the authority that signs here from all others.
func (b *Bundle) Identity() string {
	switch {
	case b.roll == nil:
		return identity(b.CAPEM)
	case b.roll.Phase == PhaseBegun:
		return identity([]byte(b.roll.From))
	}
	return identity([]byte(b.roll.To))
}

// Succeeds reports whether the authority of that identity has named the one that signs here as its successor.
func (b *Bundle) Succeeds(id string) bool {
	return b.roll != nil && b.roll.Phase != PhaseBegun && identity([]byte(b.roll.From)) == id
}

// Precedes reports whether the authority that signs here has named the one of that identity as its successor.
func (b *Bundle) Precedes(id string) bool {
	return b.roll != nil && b.roll.Phase == PhaseBegun && identity([]byte(b.roll.To)) == id
}

// Phase returns how far the authority is rolled.
func (b *Bundle) Phase() Phase {
	if b.roll == nil {
		return PhaseNone
	}
	return b.roll.Phase
}

// isRolling reports whether two authorities are trusted.
func (b *Bundle) isRolling() bool { return b.Phase() == PhaseBegun || b.Phase() == PhaseSwitched }

// readRoll reads RollFile. It returns nil if there is none.
func (b *Bundle) readRoll() (*roll, error) {
	content, err := readKey(b.file(RollFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read how far the authority is rolled: %w", err)
	}
	r := &roll{}
	if err := json.Unmarshal(content, r); err != nil {
		return nil, fmt.Errorf("%s is not readable: copy the directory from another replica: %w", b.file(RollFile), err)
	}
	return r, nil
}

// forMembers returns what members get to know of a roll: all but the key.
func (r *roll) forMembers() *roll {
	if r == nil {
		return nil
	}
	out := *r
	out.Key = ""
	return &out
}

// trusted returns what CACertFile holds in a phase: the authority that signs comes first.
func (r *roll) trusted() []byte {
	switch r.Phase {
	case PhaseBegun:
		return []byte(r.From + r.To)
	case PhaseSwitched:
		return []byte(r.To + r.From)
	}
	return []byte(r.To)
}

// verify returns an error unless From has signed the proof, and the proof is for To.
func (r *roll) verify() error {
	var all []*x509.Certificate
	for _, one := range []string{r.From, r.To, r.Proof} {
		certs, err := cert.ParseCertsPEM([]byte(one))
		if err != nil || len(certs) != 1 {
			return errors.New("it does not hold the old authority, the new one and the proof")
		}
		all = append(all, certs[0])
	}
	from, to, proof := all[0], all[1], all[2]
	if err := proof.CheckSignatureFrom(from); err != nil {
		return fmt.Errorf("the old authority has not named the new one: %w", err)
	}
	if !samePublicKey(proof.PublicKey, to.PublicKey) || !to.IsCA || !from.IsCA {
		return errors.New("the old authority has named another one")
	}
	switch r.Phase {
	case PhaseBegun, PhaseSwitched, PhaseFinished:
		return nil
	}
	return fmt.Errorf("it is in phase %q, which this version does not know", r.Phase)
}

// newRoll makes the successor of an authority.
func newRoll(from []byte, ca *x509.Certificate, key crypto.Signer) (*roll, error) {
	certPEM, keyPEM, err := newAuthority()
	if err != nil {
		return nil, err
	}
	certs, err := cert.ParseCertsPEM(certPEM)
	if err != nil {
		return nil, fmt.Errorf("cannot parse the new authority: %w", err)
	}
	template := authorityTemplate()
	template.NotAfter = ca.NotAfter
	proof, err := endorse(template, ca, certs[0].PublicKey, key)
	if err != nil {
		return nil, err
	}
	old := append(bytes.TrimSpace(from), '\n')
	return &roll{Phase: PhaseBegun, From: string(old), To: string(certPEM), Proof: string(proof), Key: string(keyPEM)}, nil
}

// nextAuthority returns the authority that will sign, and its key.
func (r *roll) nextAuthority() (*x509.Certificate, crypto.Signer, error) {
	certs, err := cert.ParseCertsPEM([]byte(r.To))
	if err != nil {
		return nil, nil, fmt.Errorf("cannot parse the new authority: %w", err)
	}
	parsed, err := keyutil.ParsePrivateKeyPEM([]byte(r.Key))
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the key of the new authority: %w", err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok || !samePublicKey(key.Public(), certs[0].PublicKey) {
		return nil, nil, errors.New("the key of the new authority is another one than its certificate's")
	}
	return certs[0], key, nil
}
