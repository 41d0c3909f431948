package pki

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/client-go/util/cert"
)

// Step is one of a roll.
type Step struct {
	// Does says in a few words what the step does.
	Does string
	from []Phase
	to   Phase
}

// The steps of a roll.
var (
	Begin  = Step{"begin", []Phase{PhaseNone, PhaseFinished}, PhaseBegun}
	Switch = Step{"switch", []Phase{PhaseBegun}, PhaseSwitched}
	Finish = Step{"finish", []Phase{PhaseSwitched}, PhaseFinished}
	Abort  = Step{"abort", []Phase{PhaseBegun}, PhaseNone}
)

// Allowed returns an error if the step cannot be taken here, or not now.
func (s Step) Allowed(b *Bundle) error {
	if b.authority != nil {
		return fmt.Errorf("%s is that of %s: run this where the key of the installation's authority is, in pki/ of the root shard", b.directory, b.authority.Member)
	}
	if b.caKey == nil {
		return b.noKeyError("for a new authority", "run this where the key is; an authority that is managed elsewhere is rolled there")
	}
	for _, phase := range s.from {
		if b.Phase() == phase {
			return nil
		}
	}
	state := map[Phase]string{
		PhaseNone:  "no roll has begun: regent pki roll begin",
		PhaseBegun: "a roll has begun, go on with: regent pki roll switch", PhaseSwitched: "a roll is at its last step: regent pki roll finish",
		PhaseFinished: "the last roll is finished, begin another one with: regent pki roll begin",
	}
	return fmt.Errorf("cannot %s: %s", s.Does, state[b.Phase()])
}

// Roll takes a step, in the directory and in the kubeconfig. After a crash the step is taken or not, and nothing in
// between.
func Roll(directory, kubeconfig string, s Step) error {
	b, unlock, err := openLocked(directory)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.Allowed(b); err != nil {
		return err
	}
	next, err := b.after(s)
	if err != nil {
		return err
	}
	files, err := b.replaceAdmin(next.Bundle, kubeconfig)
	if err != nil {
		return err
	}
	files = append(files, file{b.file(CACertFile), next.CAPEM}, file{b.file(RollFile), next.rollFile})
	if next.keyPEM != nil {
		files = append(files, file{b.file(CAKeyFile), next.keyPEM})
	}
	token, err := b.tokenKey()
	if err != nil {
		return err
	}
	return replaceTogether(b.directory, append(files, token...)...)
}

// tokenKey returns the key of service accounts' tokens if the directory has none yet, as replicas have derived it. From
// the next authority's key another one would follow, and all tokens would end when replicas begin with copies.
func (b *Bundle) tokenKey() ([]file, error) {
	name := b.file(serviceAccountKeyFile)
	if exists(name) {
		return nil, nil
	}
	keyPEM, err := derivedKey(b.directory)
	if err != nil {
		return nil, err
	}
	return []file{{name, keyPEM}}, nil
}

// state is what a directory holds after a step. keyPEM is nil if the key that signs stays. rollFile is empty if there
// is no roll.
type state struct {
	*Bundle
	keyPEM, rollFile []byte
}

func (b *Bundle) after(s Step) (*state, error) {
	next := *b
	out := &state{Bundle: &next}
	if s.to == PhaseNone {
		next.CAPEM = []byte(b.roll.From)
		return out, nil
	}
	r := &roll{}
	if s.to != PhaseBegun {
		*r = *b.roll
	} else {
		made, err := b.begin()
		if err != nil {
			return nil, err
		}
		r = made
	}
	if r.Phase = s.to; s.to == PhaseSwitched {
		ca, key, err := r.nextAuthority()
		if err != nil {
			return nil, err
		}
		if next.AdminCertPEM, next.AdminKeyPEM, err = issue(ca, key, adminTemplate()); err != nil {
			return nil, err
		}
		out.keyPEM, r.Key = []byte(r.Key), ""
	}
	next.CAPEM = r.trusted()
	content, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("cannot encode how far the authority is rolled: %w", err)
	}
	out.rollFile = content
	return out, nil
}

// begin makes the successor of the authority.
func (b *Bundle) begin() (*roll, error) {
	certs, err := cert.ParseCertsPEM(b.CAPEM)
	if err != nil {
		return nil, fmt.Errorf("cannot parse the authority: %w", err)
	}
	if len(certs) != 1 {
		return nil, fmt.Errorf("%s holds %d certificates that Regent has not put there: only an authority of its own can be rolled", b.file(CACertFile), len(certs))
	}
	if b.isRolling() {
		return nil, errors.New("a roll has begun")
	}
	return newRoll(b.CAPEM, b.ca, b.caKey)
}

// Successor returns a certificate of the administrator that the new authority of a roll has signed, to find out who
// trusts it. It is nowhere on disk.
func (b *Bundle) Successor() (certPEM, keyPEM []byte, err error) {
	if b.Phase() != PhaseBegun {
		return b.AdminCertPEM, b.AdminKeyPEM, nil
	}
	ca, key, err := b.roll.nextAuthority()
	if err != nil {
		return nil, nil, err
	}
	return issue(ca, key, adminTemplate())
}

// SignerPEM returns the certificate of the authority that signs, alone.
func (b *Bundle) SignerPEM() ([]byte, error) { return cert.EncodeCertificates(b.ca) }
