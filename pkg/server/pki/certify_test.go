package pki

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
)

// steps takes an authority through a roll, and returns its directory as it was after each step: before, begun,
// switched, finished.
func steps(t *testing.T) []*Bundle {
	t.Helper()
	directory, kubeconfig := newPair(t)
	all := []*Bundle{mustRead(t, directory)}
	for _, s := range []Step{Begin, Switch, Finish} {
		if err := Roll(directory, kubeconfig, s); err != nil {
			t.Fatal(err)
		}
		all = append(all, mustRead(t, directory))
	}
	return all
}

// certified returns a membership as it is after each step.
func certified(t *testing.T, steps []*Bundle, m Member) []*Membership {
	t.Helper()
	all := []*Membership{newMembership(t, steps[0], m)}
	for _, b := range steps[1:] {
		next, err := b.Certify(all[len(all)-1])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, next)
	}
	return all
}

// accepts returns an error unless whoever is at one step accepts what a member shows that is at another.
func accepts(t *testing.T, by *Bundle, of *Authority) error {
	t.Helper()
	shown, _, err := of.Call(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := cert.ParseCertsPEM(shown)
	if err != nil {
		t.Fatal(err)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(by.CAPEM)
	between.AddCert(chain[1])
	chains, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return err
	}
	if who, _, err := MemberOf(chains[0]); err != nil || who != of.Member {
		t.Errorf("%v (%v), want %v", who, err, of.Member)
	}
	return nil
}

// Members that are at the same step of a roll, or one step apart, accept each other, and are the same for all the time.
// Two steps apart they may not: that is why each step waits for all.
func TestMembersThatAreAStepApartAcceptEachOther(t *testing.T) {
	steps := steps(t)
	shard, front := certified(t, steps, eu1), certified(t, steps, Member{KindFront, "f"})
	for n := range steps {
		for k := range steps {
			of, err := front[n].Authority()
			if err != nil {
				t.Fatal(err)
			}
			by, err := shard[k].bundle()
			if err != nil {
				t.Fatal(err)
			}
			for who, b := range map[string]*Bundle{"the root shard": steps[k], "another shard": by} {
				if err := accepts(t, b, of); (err == nil) != (n <= 1 && k <= 2 || n >= 2 && k >= 1) {
					t.Errorf("%s at step %d, of a front at step %d: %v", who, k, n, err)
				}
			}
			first, err := front[0].Authority()
			if err != nil || first.Fingerprint() != of.Fingerprint() {
				t.Errorf("at step %d it is another one", n)
			}
		}
		if shard[n].Roll != nil && shard[n].Roll.Key != "" {
			t.Error("a member gets the authority's key")
		}
	}
}

// A member's directory takes the steps in any order that the root shard's record would take, and no other authority.
func TestAMembersDirectoryFollowsARoll(t *testing.T) {
	rolled := steps(t)
	memberships := certified(t, rolled, eu1)
	stranger := certified(t, steps(t), eu1)
	for name, test := range map[string]struct {
		takes   []*Membership
		refused bool // the last one
	}{
		"step by step":                       {memberships, false},
		"all at once":                        {[]*Membership{memberships[0], memberships[3]}, false},
		"a roll that is undone":              {[]*Membership{memberships[0], memberships[1], memberships[0]}, false},
		"the step before":                    {[]*Membership{memberships[2], memberships[1]}, false},
		"one from before the roll":           {[]*Membership{memberships[2], memberships[0]}, true},
		"one from before the roll, finished": {[]*Membership{memberships[3], memberships[0]}, true},
		"a stranger's roll":                  {[]*Membership{memberships[1], stranger[1]}, true},
		"a stranger's, finished":             {[]*Membership{memberships[0], stranger[3]}, true},
	} {
		t.Run(name, func(t *testing.T) {
			directory := newDirectory(t)
			for n, m := range test.takes {
				last := n == len(test.takes)-1
				_, planned := Joined(directory, m)
				err := Join(directory, m)
				if (err != nil) != (last && test.refused) || (planned != nil) != (err != nil) {
					t.Fatalf("number %d: %v, planned %v", n, err, planned)
				}
				if err != nil {
					continue
				}
				b := ensure(t, directory)
				if a, err := b.Authority("eu1"); err != nil || string(a.certPEM) != m.Certificate || string(b.CAPEM) != m.CertificateAuthority || b.Phase() != phaseOf(m) {
					t.Errorf("number %d: phase %q, %v", n, b.Phase(), err)
				}
			}
		})
	}
}

func phaseOf(m *Membership) Phase {
	if m.Roll == nil {
		return PhaseNone
	}
	return m.Roll.Phase
}

func TestAFileIsCertifiedInItsPlace(t *testing.T) {
	directory, kubeconfig := newPair(t)
	name := filepath.Join(t.TempDir(), "eu1.yaml")
	content, err := newMembership(t, mustRead(t, directory), eu1).Encode()
	if err == nil {
		err = os.WriteFile(name, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []Step{Begin, Abort, Begin, Switch, Finish, Begin} {
		if err := Roll(directory, kubeconfig, s); err != nil {
			t.Fatal(err)
		}
		b := mustRead(t, directory)
		for range 2 { // again changes nothing
			if who, err := b.CertifyFile(name); err != nil || who != eu1 {
				t.Fatalf("%s: %v, %v", s.Does, who, err)
			}
		}
		m, err := ReadMembership(name)
		if err != nil || phaseOf(m) != b.Phase() || m.CertificateAuthority != string(b.CAPEM) {
			t.Errorf("%s: phase %q (%v)", s.Does, phaseOf(m), err)
		}
	}
	stranger := ensure(t, newDirectory(t))
	if _, err := stranger.CertifyFile(name); err == nil || !strings.Contains(err.Error(), "another installation's") {
		t.Errorf("another installation's: %v", err)
	}
	if err := os.Remove(filepath.Join(directory, CAKeyFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := mustRead(t, directory).CertifyFile(name); err == nil || !strings.Contains(err.Error(), CAKeyFile) {
		t.Errorf("without the key: %v", err)
	}
}

// A member that joins during a roll has the step that the root shard has.
func TestAMemberThatJoinsDuringARollKnowsOfIt(t *testing.T) {
	for _, b := range steps(t)[1:3] {
		m := newMembership(t, b, eu1)
		if got := m.Trusted(); len(got) != 2 || !got[0].Equal(b.CA()) || m.Roll.Key != "" {
			t.Errorf("phase %s: it trusts %d", b.Phase(), len(got))
		}
	}
}
