package pki

import (
	"fmt"
	"os"
)

// Certify returns a membership as it is to be at the step of a roll that this directory has reached: with the
// authorities that are trusted, the proof of the roll, and a certificate for the member's key that the authority that
// signs now has signed. So the member stays the same for all others, whatever step they have. It needs the key of the
// installation's authority.
func (b *Bundle) Certify(m *Membership) (*Membership, error) {
	had, err := m.bundle()
	if err != nil {
		return nil, err
	}
	if b.caKey == nil {
		return nil, b.noKeyError("the membership of "+had.authority.Member.String(), "run this where that key is")
	}
	if !b.follows(had) && !had.follows(b) {
		return nil, fmt.Errorf("the membership of %s is another installation's, or has missed a roll: have a new one made, regent shard add --renew or regent front add", had.authority.Member)
	}
	out := *m
	out.CertificateAuthority, out.Roll = string(b.CAPEM), b.roll.forMembers()
	if had.authority.certificate.CheckSignatureFrom(b.ca) == nil {
		return &out, nil
	}
	certPEM, err := endorse(memberTemplate(had.authority.Member), b.ca, had.authority.key.Public(), b.caKey)
	if err != nil {
		return nil, err
	}
	out.Certificate = string(certPEM)
	return &out, nil
}

// CertifyFile does what Certify does with a file, and replaces it. It returns whose membership it is.
func (b *Bundle) CertifyFile(name string) (Member, error) {
	m, err := ReadMembership(name)
	if err != nil {
		return Member{}, err
	}
	next, err := b.Certify(m)
	if err != nil {
		return Member{}, fmt.Errorf("%s: %w", name, err)
	}
	content, err := next.Encode()
	if err != nil {
		return Member{}, fmt.Errorf("cannot encode the membership: %w", err)
	}
	if there, err := os.ReadFile(name); err == nil && string(there) == string(content) {
		return Member(m.Member), nil
	}
	return Member(m.Member), writeFile(name, content)
}
