package pki

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// newPair makes a directory pki/ and a kubeconfig beside it.
func newPair(t *testing.T) (directory, kubeconfig string) {
	t.Helper()
	root := t.TempDir()
	directory, kubeconfig = filepath.Join(root, "pki"), filepath.Join(root, "admin.kubeconfig")
	b, err := Ensure(directory)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.WriteKubeconfig(kubeconfig, Kubeconfig{BaseURL: "https://127.0.0.1:6443", Contexts: map[string]string{"replica-0": "https://127.0.0.1:6444"}}); err != nil {
		t.Fatal(err)
	}
	return directory, kubeconfig
}

func mustRead(t *testing.T, directory string) *Bundle {
	t.Helper()
	b, err := Read(directory)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.X509KeyPair(b.AdminCertPEM, b.AdminKeyPEM); err != nil {
		t.Errorf("the administrator's certificate and key: %v", err)
	}
	return b
}

// mustShow fails the test unless the kubeconfig has what the directory has.
func mustShow(t *testing.T, kubeconfig string, b *Bundle) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	who := config.AuthInfos["admin"]
	if !bytes.Equal(who.ClientCertificateData, b.AdminCertPEM) || !bytes.Equal(who.ClientKeyData, b.AdminKeyPEM) {
		t.Error("the kubeconfig has another certificate")
	}
	for name, cluster := range config.Clusters {
		if !bytes.Equal(cluster.CertificateAuthorityData, b.CAPEM) {
			t.Errorf("context %s of the kubeconfig has other authorities", name)
		}
	}
	if len(config.Contexts) != 3 || config.Clusters["replica-0"].Server != "https://127.0.0.1:6444" {
		t.Errorf("the kubeconfig has lost something: %v", config.Contexts)
	}
}

// After each step the directory is whole, and what was good before the step is good until the next one.
func TestARollGoesForwardStepByStep(t *testing.T) {
	directory, kubeconfig := newPair(t)
	first := mustRead(t, directory)
	before := first
	for _, c := range []struct {
		step      Step
		trusted   int
		signs     func(now *Bundle) bool
		succeeds  bool // the first authority
		forbidden []Step
	}{
		{Begin, 2, func(now *Bundle) bool { return now.CA().Equal(first.CA()) }, false, []Step{Begin, Finish}},
		{Switch, 2, func(now *Bundle) bool { return !now.CA().Equal(first.CA()) }, true, []Step{Begin, Switch, Abort}},
		{Finish, 1, func(now *Bundle) bool { return !now.CA().Equal(first.CA()) }, true, []Step{Switch, Finish, Abort}},
	} {
		if err := Roll(directory, kubeconfig, c.step); err != nil {
			t.Fatalf("%s: %v", c.step.Does, err)
		}
		now := mustRead(t, directory)
		mustShow(t, kubeconfig, now)
		if len(now.Trusted()) != c.trusted || !c.signs(now) || now.Succeeds(first.Identity()) != c.succeeds {
			t.Errorf("%s: %d are trusted, %s signs, succeeds: %t", c.step.Does, len(now.Trusted()), Fingerprint(now.CA()), now.Succeeds(first.Identity()))
		}
		if c.step.to != PhaseFinished {
			if err := now.checkSigned(parse(t, before.AdminCertPEM)); err != nil {
				t.Errorf("%s: the certificate from before: %v", c.step.Does, err)
			}
		} else if now.checkSigned(parse(t, first.AdminCertPEM)) == nil {
			t.Error("what the old authority has signed is good after the roll")
		}
		for _, s := range c.forbidden {
			if err := Roll(directory, kubeconfig, s); err == nil || !strings.Contains(err.Error(), "regent pki roll") {
				t.Errorf("%s after %s: %v", s.Does, c.step.Does, err)
			}
		}
		before = now
	}
	if before.Identity() == first.Identity() || first.Succeeds(before.Identity()) || before.Precedes(first.Identity()) {
		t.Error("the new authority is the old one, or precedes it")
	}
	if err := Roll(directory, kubeconfig, Begin); err != nil {
		t.Errorf("another roll: %v", err)
	}
}

func TestARollThatIsAbortedLeavesNothing(t *testing.T) {
	directory, kubeconfig := newPair(t)
	first := mustRead(t, directory)
	for _, s := range []Step{Begin, Abort} {
		if err := Roll(directory, kubeconfig, s); err != nil {
			t.Fatal(err)
		}
	}
	now := mustRead(t, directory)
	if !bytes.Equal(now.CAPEM, first.CAPEM) || now.Identity() != first.Identity() || now.Phase() != PhaseNone {
		t.Error("the directory is another one than before")
	}
	mustShow(t, kubeconfig, now)
}

// Whoever copies some files of another step, or forges a successor, is refused.
func TestASuccessorThatTheAuthorityHasNotNamedIsRefused(t *testing.T) {
	for name, spoil := range map[string]func(*testing.T, string, *roll){
		"another successor": func(t *testing.T, directory string, r *roll) {
			stranger, _, err := newAuthority()
			if err != nil {
				t.Fatal(err)
			}
			r.To = string(stranger)
		},
		"a proof by another authority": func(t *testing.T, directory string, r *roll) {
			certPEM, keyPEM, err := newAuthority()
			if err != nil {
				t.Fatal(err)
			}
			a, key, err := (&roll{To: string(certPEM), Key: string(keyPEM)}).nextAuthority()
			if err != nil {
				t.Fatal(err)
			}
			forged, err := newRoll(certPEM, a, key)
			if err != nil {
				t.Fatal(err)
			}
			r.To, r.Proof = forged.To, forged.Proof
		},
		"another phase":    func(_ *testing.T, _ string, r *roll) { r.Phase = PhaseSwitched },
		"an unknown phase": func(_ *testing.T, _ string, r *roll) { r.Phase = "later" },
	} {
		t.Run(name, func(t *testing.T) {
			directory, kubeconfig := newPair(t)
			if err := Roll(directory, kubeconfig, Begin); err != nil {
				t.Fatal(err)
			}
			r := &roll{}
			content, err := os.ReadFile(filepath.Join(directory, RollFile))
			if err == nil {
				err = json.Unmarshal(content, r)
			}
			if err != nil {
				t.Fatal(err)
			}
			spoil(t, directory, r)
			if content, err = json.Marshal(r); err == nil {
				err = os.WriteFile(filepath.Join(directory, RollFile), content, 0o600)
			}
			if name != "another phase" && err == nil {
				err = os.WriteFile(filepath.Join(directory, CACertFile), r.trusted(), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			if b, err := Read(directory); err == nil {
				t.Errorf("read: phase %s, signs %s", b.Phase(), Fingerprint(b.CA()))
			}
		})
	}
}

// Wherever a crash comes, the files that are replaced together are all old or all new for whoever opens the directory
// next.
func TestACrashLeavesNoHalfOfAPair(t *testing.T) {
	for replaced := range 4 {
		t.Run(fmt.Sprint(replaced), func(t *testing.T) {
			directory, _ := newPair(t)
			before := mustRead(t, directory)
			certPEM, keyPEM, err := issue(before.ca, before.caKey, adminTemplate())
			if err != nil {
				t.Fatal(err)
			}
			gone := before.file("gone")
			if err := os.WriteFile(gone, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			all := redo{[]redoneFile{{AdminKeyFile, keyPEM}, {AdminCertFile, certPEM}, {"gone", nil}}}
			content, err := json.Marshal(all)
			if err != nil {
				t.Fatal(err)
			}
			if err := writeFile(before.file(redoFile), content); err != nil {
				t.Fatal(err)
			}
			for _, f := range all.Files[:replaced] {
				if err := replaceOrRemove(before.file(f.Name), f.Content); err != nil {
					t.Fatal(err)
				}
			}
			after := mustRead(t, directory)
			if !bytes.Equal(after.AdminCertPEM, certPEM) || !bytes.Equal(after.AdminKeyPEM, keyPEM) || exists(gone) || exists(before.file(redoFile)) {
				t.Error("the replacement was not finished")
			}
		})
	}
}

func TestRenewMakesAnewWhatExpires(t *testing.T) {
	directory, kubeconfig := newPair(t)
	before := mustRead(t, directory)
	for _, c := range []struct {
		name  string
		r     Renewal
		ca    string
		admin string
		made  bool
	}{
		{"nothing expires", Renewal{Before: time.Hour}, Kept, Kept, false},
		{"dry run", Renewal{DryRun: true}, Kept, Renewed, false},
		{"all expires", Renewal{Before: 2 * validity}, Elsewhere, Renewed, true},
		{"all", Renewal{}, Kept, Renewed, true},
	} {
		c.r.Kubeconfig = kubeconfig
		all, err := Renew(directory, c.r)
		if err != nil || len(all) != 2 || all[0].Action != c.ca || all[1].Action != c.admin || (all[0].Advice != "") != (c.ca == Elsewhere) {
			t.Errorf("%s: %v, %v", c.name, all, err)
		}
		now := mustRead(t, directory)
		mustShow(t, kubeconfig, now)
		if made := !bytes.Equal(now.AdminCertPEM, before.AdminCertPEM) && !bytes.Equal(now.AdminKeyPEM, before.AdminKeyPEM); made != c.made {
			t.Errorf("%s: made %t", c.name, made)
		}
		before = now
	}
}

func TestWhereTheKeyIsNotNothingIsSigned(t *testing.T) {
	directory, kubeconfig := newPair(t)
	if err := os.Remove(filepath.Join(directory, CAKeyFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := Renew(directory, Renewal{Kubeconfig: kubeconfig}); err == nil || !strings.Contains(err.Error(), CAKeyFile) {
		t.Errorf("renew: %v", err)
	}
	if err := Roll(directory, kubeconfig, Begin); err == nil || !strings.Contains(err.Error(), CAKeyFile) {
		t.Errorf("roll: %v", err)
	}
}
